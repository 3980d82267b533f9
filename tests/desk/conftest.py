"""The desk's tests deliver wake-ups as those of the API do."""

from tests.api.conftest import carried, carrier, shop

__all__ = ["carried", "carrier", "shop"]
