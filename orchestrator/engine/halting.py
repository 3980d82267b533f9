"""Runs that nobody can go on with: halted and told of, never met again and again.

The stored document does not have the digest that it is kept by, or the compact state has a format
that this build does not know. Nothing can be decided then, so nothing is. Or what was decided
cannot be written, nor its failure. The run stands paused, as it is, until somebody has mended the
cause and resumes it.
"""

from __future__ import annotations

import logging
import struct
import threading
import time
from typing import Any
from uuid import UUID

from orchestrator.core.errors import OrchestratorError
from orchestrator.core.snapshot import unpack
from orchestrator.crash import Unit
from orchestrator.models import alert_rows, halt_rows

logger = logging.getLogger(__name__)

ALERT = "unreadable"
_AGAIN_S = 60.0


class _Met:
    """When this process halted which run last: sweeps meet it each second."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at: dict[UUID, float] = {}

    def is_new(self, run_id: UUID) -> bool:
        now = time.monotonic()
        with self._lock:
            if now - self._at.get(run_id, -_AGAIN_S) < _AGAIN_S:
                return False
            self._at = {known: at for known, at in self._at.items() if now - at < _AGAIN_S}
            self._at[run_id] = now
        return True


_met = _Met()


def halt(run_id: UUID, cause: OrchestratorError) -> None:
    """Pause the run with the reason, and open an alert; at most once a minute in each process.

    A run that is ending stays as it is, and so does one that others hold: only the alert tells.
    """
    if not _met.is_new(run_id):
        return
    logger.error("nobody can go on with run %s, it is halted: %s", run_id, cause)
    with Unit("halt"):
        found = halt_rows.lock_open(run_id)
        if found is not None:
            version, compact = found
            paused = _paused(compact)
            if paused is not None:
                halt_rows.pause(run_id, version, paused, reason=f"halted: {cause}")
        alert_rows.open_alert(
            ALERT,
            str(run_id),
            title=f"Nobody can go on with run {run_id}, it is halted: {cause}",
            detail={"cause": str(cause), "runbook": "unreadable-run"},
            severity="critical",
            run_id=run_id,
        )


def _paused(compact: bytes) -> bytes | None:
    """The compact state of the run as paused; as it is when nobody can read it; None: it is ending,
    and what is ending is not paused."""
    try:
        snapshot = unpack(compact)
    except (ValueError, struct.error):
        return compact
    if snapshot.verdict is not None:
        return None
    snapshot.paused = True
    return snapshot.pack()


def run_of(found: Any) -> UUID | None:
    """The run that a sweep's finding is about."""
    if isinstance(found, tuple):
        found = found[0]
    run_id = found if isinstance(found, UUID) else getattr(found, "run_id", None)
    return run_id if isinstance(run_id, UUID) else None
