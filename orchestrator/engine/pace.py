"""How long bodies took in this process: what a lane may take in hand together is short ones."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.engine.work import Work

_MOST = 1000
_UP, _DOWN = 0.5, 0.25


class Pace:
    """A smoothed time of each tool's bodies; quick to believe that one has become slow. Threads
    write it without a lock: a lost note does no harm."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def note(self, work: Work, seconds: float) -> None:
        """The attempt took so long; one that never got to its tool's body says nothing."""
        step, prepared = work.step, work.prepared
        if not step.may_share or prepared.items is not None or prepared.error is not None:
            return
        usual = self._seconds.get(step.tool)
        if usual is None:
            if len(self._seconds) >= _MOST:
                self._seconds = {}
            self._seconds[step.tool] = seconds
        else:
            by = _UP if seconds > usual else _DOWN
            self._seconds[step.tool] = usual + (seconds - usual) * by

    def known(self) -> Mapping[str, float]:
        """Seconds by the tool's name."""
        return self._seconds

    def forget(self) -> None:
        """As after a start (tests)."""
        self._seconds = {}


pace = Pace()
