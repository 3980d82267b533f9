"""What one lane claimed together: its bodies run one after the other, and it gives back the rest.

Bodies that were short before are claimed in company (``core/admission``). When one of them turns
out long, what has not begun goes back to others: by the lane itself between two bodies, by the
thread that keeps the leases when the lane is stuck in one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from django.db import DatabaseError, connection

from orchestrator.core.admission import COMPANY_S
from orchestrator.engine.leases import keeper
from orchestrator.engine.pace import pace
from orchestrator.engine.work import Answer, Work
from orchestrator.models import rows

logger = logging.getLogger(__name__)

Done = list[tuple[Work, Answer]]

STUCK_S = 0.25
"""A body that runs longer keeps nothing else from beginning."""
TOGETHER_S = 2 * COMPANY_S
"""After so long the lane settles what it has, and gives back the rest."""
LOOK_S = 0.002
"""How often a lane looks between two bodies whether its run was paused or is ending."""


class Hand:
    """Attempts under our lease, in the order in which their bodies run."""

    def __init__(self, first: Work, give_back: Callable[[Sequence[Work]], None]) -> None:
        self.members = [first, *first.company]
        self._left = deque(self.members)
        self._give_back = give_back
        self._lock = threading.Lock()
        self._begun_at = time.monotonic()

    def play(self, perform: Callable[[Work], Answer | None]) -> tuple[Done, list[Work]]:
        """Run the bodies; what they answered, and what has not begun and is still ours to give
        back. A body that answers nothing (this process stood still) ends it."""
        held = [(work.row.id, work.row.fence) for work in self.members]
        done: Done = []
        with keeper.holding_many(held, self, since=self.members[0].asked_at):
            started = looked = time.monotonic()
            while (work := self._next()) is not None:
                answer = self._run(work, perform)
                if answer is None:
                    break
                done.append((work, answer))
                now = time.monotonic()
                if now - started > TOGETHER_S:
                    break
                if now - looked > LOOK_S:
                    looked = now
                    if _starts_nothing(work):
                        break
            return done, self._take_rest()

    def _run(self, work: Work, perform: Callable[[Work], Answer | None]) -> Answer | None:
        row = work.row
        if not keeper.is_ours(row.id):
            logger.warning("step %s: this process stood still past its lease", row.id)
            return None
        keeper.begins(row.id, work.step.timeout_s)
        began = time.monotonic()
        answer = perform(work)
        pace.note(work, time.monotonic() - began)
        keeper.ended(row.id)
        return answer

    def _next(self) -> Work | None:
        with self._lock:
            self._begun_at = time.monotonic()
            return self._left.popleft() if self._left else None

    def _take_rest(self) -> list[Work]:
        with self._lock:
            rest = list(self._left)
            self._left.clear()
        return rest

    def give_back_if_stuck(self) -> None:
        """Another thread's look; what it takes, the lane does not begin."""
        if not self._left or time.monotonic() - self._begun_at < STUCK_S:
            return
        rest = self._take_rest()
        if not rest:
            return
        keeper.drop(work.row.id for work in rest)
        try:
            self._give_back(rest)
        except DatabaseError:  # their leases run out
            logger.warning("%s steps could not be given back", len(rest), exc_info=True)
            connection.close()


def _starts_nothing(work: Work) -> bool:
    """Whether the run was paused, or is ending: nothing of it may begin."""
    run = rows.read_run(work.run.id)
    return run is None or run.ended or run.snapshot.paused or run.snapshot.verdict is not None
