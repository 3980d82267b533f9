from tests.engine.conftest import carrier, fusion

__all__ = ["carrier", "fusion"]
