"""The gates as this process last saw them: at most a second old, one small read a second.

In peace it costs no read at all: the claim that takes a step says in its own answer that there is
no gate (``guarded`` of ``orchestrator_take``).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from orchestrator.conf import engine_settings
from orchestrator.core.admission import Lane
from orchestrator.core.compiled import StepPlan
from orchestrator.core.gates import OPEN, Gate, Gates, keys_of, retries_key
from orchestrator.models import gate_rows
from orchestrator.models.rows import StepRow


class GateCache:
    """One process's view. Threads may read it at once: both fields are replaced, never changed."""

    def __init__(self) -> None:
        self._gates = OPEN
        self._read_at = float("-inf")

    def now(self) -> Gates:
        """The gates, read again when the view is older than a second."""
        if not self._is_fresh():
            at = time.monotonic()
            self._gates = Gates.of(gate_rows.live_gates())
            self._read_at = at
        return self._gates

    def peek(self) -> Gates:
        """The view without any read; none when it is too old to trust."""
        return self._gates if self._is_fresh() else OPEN

    def learn_open(self) -> None:
        """Somebody has just seen that there is no gate."""
        self._gates = OPEN
        self._read_at = time.monotonic()

    def forget(self) -> None:
        """This process has changed a gate: read again before the next decision."""
        self._read_at = float("-inf")

    def _is_fresh(self) -> bool:
        age = time.monotonic() - self._read_at
        return age < engine_settings().gates_fresh.total_seconds()


cache = GateCache()


def gates_before(tenant: str, step: StepPlan, row: StepRow) -> Sequence[Gate]:
    """The gates that this READY step stands before, in the order in which they are locked."""
    gates = cache.now()
    if not gates.by_key:
        return ()
    keys = keys_of(row.gates or (), tenant=tenant, queue=row.queue)
    if row.n_retries and step.breaker and row.gates:
        keys = (*keys, retries_key(step.breaker))
    return gates.among(keys, passed=row.passed)


def shut_or_full(gates: Sequence[Gate]) -> Gate | None:
    """The first of ``gates`` that lets nobody through now; None: all do.

    Locks the limited ones until the transaction ends, so that nobody else counts meanwhile; call
    with the run locked.
    """
    for gate in gates:
        if gate.allows == 0:
            return gate
    for gate in gates:
        if gate_rows.room(gate.key, lock=True) < 1 or gate_rows.has_line(gate.key):
            return gate
    return None


def behind_gates(lane: Lane, tenant: str) -> Lane:
    """The lane, claiming nothing that stands before a gate: that is left to a claim by message."""
    gates = cache.now()
    if not gates.by_key:
        return lane
    whole = gates.among(keys_of((), tenant=tenant, queue=lane.queue))
    return replace(lane, takes_next=lane.takes_next and not whole, shut=frozenset(gates.by_key))
