"""The product as its users meet it: the API, the real engine, and the outside as real servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.tools.discovery import discover_tools
from tests.desk.world import TENANT, Caller
from tests.effects.conftest import carrier, options, post, web
from workflows_app import gallery
from workflows_app.models import Tenant
from workflows_app.publishing import publish

__all__ = ["carrier", "options", "post", "web"]

GALLERY = Path(gallery.__file__).parent


@pytest.fixture(autouse=True)
def quick_services(settings: Any, web: Any) -> None:
    """The demo's services answer at once; tools may call the doubles on loopback."""
    discover_tools()
    more = {"DEMO_LATENCY_MS": 0, "HTTP_ALLOW_PRIVATE": [f"127.0.0.1:{web.port}"]}
    settings.ORCHESTRATOR = {**settings.ORCHESTRATOR, **more}


@pytest.fixture
def shop(carrier: Any) -> Caller:
    """Whoever starts runs and looks at them; ``order_payment`` of the gallery is published."""
    Tenant.ensure(TENANT)
    text = (GALLERY / "order_payment.yaml").read_bytes()
    publish(TENANT, text, "application/yaml", actor="user:author")
    return Caller()
