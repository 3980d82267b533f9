"""Kept connections to the database: looked at before use, but not before every use."""

from __future__ import annotations

import threading
import time

from django.db import connections

LOOK_EVERY_S = 2.0
_looked = threading.local()


def look_at_connections() -> None:
    """Drop a kept connection that the server has closed, so that a restart heals at once.

    Looking costs a round trip, so a connection of this thread that was looked at a moment ago, and
    has had no error since, is taken for good.
    """
    now = time.monotonic()
    is_fresh = now - getattr(_looked, "at", -LOOK_EVERY_S) < LOOK_EVERY_S
    kept = connections.all(initialized_only=True)
    if is_fresh and not any(connection.errors_occurred for connection in kept):
        return
    _looked.at = now
    for connection in kept:
        connection.close_if_unusable_or_obsolete()
