"""Effects over the real engine, and the outside as real servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orchestrator.tools.discovery import discover_tools
from tests.adapters.conftest import options, web
from tests.adapters.smtp import PostOffice, post_office
from tests.engine.conftest import carrier, fusion

__all__ = ["carrier", "fusion", "options", "web"]


@pytest.fixture(autouse=True, scope="session")
def tools_are_found() -> None:
    discover_tools()


@pytest.fixture
def post(settings) -> Iterator[PostOffice]:
    """A mail server on loopback that Django's own SMTP backend talks to."""
    with post_office() as office:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", office.port
        yield office
