"""What the broker may answer instead of an answer."""

from __future__ import annotations

from functools import cache

from celery import current_app
from kombu.exceptions import KombuError


@cache
def broker_errors() -> tuple[type[BaseException], ...]:
    """Everything that says that the broker, or its result store, is away or unwell.

    The transport's own errors among them: kombu translates them only on some of its ways.
    """
    link = current_app.connection_for_write()
    return (KombuError, OSError, *link.connection_errors, *link.channel_errors)
