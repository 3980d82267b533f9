"""How long a worker may go on along one run before it gives its place to others."""

from __future__ import annotations

import time
from collections.abc import Callable

from orchestrator.conf import engine_settings
from orchestrator.tasks.depth import queue_depth
from orchestrator.tasks.slots import Seat


class StretchControl:
    """One message's stretch: ends after so many steps or so much time, sooner when others wait.

    Others are the messages of the queue that are not the run's own. A lane ``seat`` beyond half of
    the worker's slots gives way to them at once (DESIGN section 3); None: nobody counts slots here.
    """

    def __init__(self, queue: str, seat: Seat | None = None) -> None:
        self._queue = queue
        self._seat = seat
        self._started = time.perf_counter()
        self._look_at = self._started
        self._steps = 0

    def takes_next(self, own_messages: Callable[[], int]) -> bool:
        """Whether the worker may claim another step in the same transaction."""
        limits = engine_settings()
        self._steps += 1
        now = time.perf_counter()
        if self._steps >= limits.stretch_steps:
            return False
        if now - self._started >= limits.stretch_time.total_seconds():
            return False
        if now < self._look_at or (self._is_quick(now) and not self._is_beyond_half()):
            return True
        self._look_at = now + limits.stretch_polite.total_seconds()
        return queue_depth(self._queue) <= own_messages()

    def _is_quick(self, now: float) -> bool:
        """Few steps so far, and short ones: those who wait hardly notice."""
        spent = now - self._started
        polite = engine_settings().stretch_polite.total_seconds()
        is_young = spent < polite
        is_light = self._steps < engine_settings().polite_steps and spent < self._steps * polite
        return is_young or is_light

    def _is_beyond_half(self) -> bool:
        return self._seat is not None and self._seat.is_beyond_half()
