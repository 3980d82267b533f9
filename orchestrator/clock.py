"""Where identifiers get their time and randomness. Due times are PostgreSQL's, not ours."""

from __future__ import annotations

import os
import random
import time
from datetime import UTC, datetime
from uuid import UUID

from orchestrator.core.ids import uuid7


def new_id() -> UUID:
    """A fresh UUIDv7. Its time is the host's: good for ordering, never for deadlines."""
    return uuid7(unix_ms=time.time_ns() // 1_000_000, random=os.urandom(10))


def jitter() -> float:
    """A random number in [0, 1) for back-off; recorded with the delay it made, so of few digits."""
    return random.randrange(10**6) / 10**6  # noqa: S311 - spreads load, guards nothing


def now() -> datetime:
    """The host's present instant in UTC, for time limits inside this process only."""
    return datetime.now(UTC)
