from __future__ import annotations

import pytest

from orchestrator.tools.discovery import discover_tools
from tests.adapters.conftest import options, web

__all__ = ["options", "web"]


@pytest.fixture(autouse=True, scope="session")
def tools_are_found() -> None:
    discover_tools()
