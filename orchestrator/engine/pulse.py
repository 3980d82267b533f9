"""One round of all sweeps: each second by ``manage.py pulse`` and, as a second path, by beat."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from orchestrator.core.errors import OrchestratorError
from orchestrator.engine import breaker_looks, holds, outbox, parking, recovery, timers

logger = logging.getLogger(__name__)

SWEEPS: tuple[tuple[str, Callable[[], int]], ...] = (
    ("timers", timers.fire_due),
    ("overdue", timers.end_overdue),
    ("leases", recovery.expire_leases),
    ("holds", holds.end_holds),
    ("breakers", breaker_looks.look_at_breakers),
    ("park", parking.park_ready),
    ("release", parking.release_parked),
    ("ready", recovery.redispatch_stale),
    ("outbox", outbox.sweep),
)


@dataclass(slots=True)
class Round:
    """What one round did: how many of each, and the sweeps that failed."""

    done: dict[str, int] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    @property
    def busy(self) -> bool:
        """Whether there may be more to do at once."""
        return any(self.done.values())


def beat_once() -> Round:
    """Run every sweep once. A sweep that meets a broken row does not stop the others; a database
    that is away raises."""
    result = Round()
    for name, sweep in SWEEPS:
        try:
            result.done[name] = sweep()
        except OrchestratorError:
            logger.exception("the sweep of %s met something it could not handle", name)
            result.failed.append(name)
    return result
