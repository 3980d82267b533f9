from __future__ import annotations

from typing import Any

import pytest

from orchestrator.tools.discovery import discover_tools


@pytest.fixture(autouse=True)
def quick_services(settings: Any) -> None:
    discover_tools()
    settings.ORCHESTRATOR = {**settings.ORCHESTRATOR, "DEMO_LATENCY_MS": 0}
