"""Two provider doubles over real HTTP: one honours Idempotency-Key, one does not."""

from tests.drill.providers.process import Fault, Provider, providers

__all__ = ["Fault", "Provider", "providers"]
