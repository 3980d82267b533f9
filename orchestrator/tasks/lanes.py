"""How long a worker may go on along one run before it gives its place to others."""

from __future__ import annotations

import time

from orchestrator.conf import engine_settings
from orchestrator.tasks.depth import queue_depth


class StretchControl:
    """One message's stretch: ends after so many steps or so much time, sooner when others wait."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._started = time.perf_counter()
        self._polite_at = self._started + engine_settings().stretch_polite.total_seconds()
        self._steps = 0

    def takes_next(self) -> bool:
        """Whether the worker may claim another step in the same transaction."""
        limits = engine_settings()
        self._steps += 1
        now = time.perf_counter()
        if self._steps >= limits.stretch_steps:
            return False
        if now - self._started >= limits.stretch_time.total_seconds():
            return False
        if now < self._polite_at or self._is_quick(now):
            return True
        self._polite_at = now + limits.stretch_polite.total_seconds()
        return queue_depth(self._queue) == 0

    def _is_quick(self, now: float) -> bool:
        """Few steps so far, and short ones: those who wait hardly notice."""
        spent = now - self._started
        limits = engine_settings()
        return (
            self._steps < limits.polite_steps
            and spent < self._steps * limits.stretch_polite.total_seconds()
        )
