"""READY work before a gate is parked: no worker, no message, no place; and let go in turns.

Level-triggered: what a claim or a message missed, the sweep parks; what may go on, the sweep lets
go, at most as many at once as the gate allows, in turns between tenants and between runs.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial

from django.db import InterfaceError, OperationalError, transaction

from orchestrator.core import planning
from orchestrator.core.decision import Decision, Ref
from orchestrator.core.gates import Gate
from orchestrator.core.states import StepState
from orchestrator.crash import Unit
from orchestrator.engine.blueprints import compiled
from orchestrator.engine.change import Change
from orchestrator.engine.gates import gates_before
from orchestrator.engine.settle import apply_change
from orchestrator.engine.settled import Settled
from orchestrator.engine.sweeping import each
from orchestrator.engine.values import Values
from orchestrator.models import gate_rows, ready_pages, rows
from orchestrator.models.gate_rows import InLine
from orchestrator.models.rows import RunRow, StepRow

logger = logging.getLogger(__name__)

_walk = ready_pages.Walk()


def park(run: RunRow, row: StepRow, gate: Gate) -> bool:
    """The READY step waits for the gate from now on; call with the run locked.

    False when it is not READY, or the run starts nothing now.
    """
    workflow = compiled(run.blueprint_id)
    ref = Ref(row.position, row.index)
    decision = planning.park(workflow, run.snapshot, ref, gate, state=run.state)
    if decision is None:
        return False
    move = {"waiting_for": "service", "waiting_key": gate.key, "why": gate.why}
    _write(run, row, decision, StepState.WAITING, move)
    return True


def _write(
    run: RunRow, row: StepRow, decision: Decision, to: StepState, more: Mapping[str, object]
) -> None:
    workflow = compiled(run.blueprint_id)
    settled = Settled(run=run, workflow=workflow)
    change = Change(run=run, workflow=workflow, decision=decision)
    change.subject = {
        "id": str(row.id),
        "from": row.state,
        "fence": row.fence,
        "to": str(to),
        "cost": 0,
        **more,
    }
    apply_change(change, Values(run, workflow), settled)
    transaction.on_commit(settled.send)


def park_ready(limit: int = 200) -> int:
    """Park the READY steps that stand before a shut gate; how many."""
    if not gate_rows.any_shut():
        return 0
    queues = ready_pages.queues_with_ready()
    found = [one for queue in queues for one in _walk.before_shut(queue)]
    return each([InLine(one.run_id, one.step_id) for one in found[:limit]], _park_found)


def _park_found(found: InLine) -> bool:
    with Unit("park"):
        run = rows.lock_run(found.run_id, skip_locked=True)
        row = rows.read_step(found.step_id) if run is not None else None
        if run is None or row is None or run.ended or row.state != StepState.READY:
            return False
        gate = _shut_before(run, row)
        return gate is not None and park(run, row, gate)


def _shut_before(run: RunRow, row: StepRow) -> Gate | None:
    step = compiled(run.blueprint_id).steps[row.position]
    return next((g for g in gates_before(run.tenant, step, row) if g.allows == 0), None)


def release_parked() -> int:
    """Let go what may go on; how many steps."""
    return sum(let_through(key) for key in gate_rows.parked_keys())


def let_through(key: str) -> int:
    """Let steps pass one gate, as many as there is room for; how many."""
    room = gate_rows.room(key)
    if room < 1:
        return 0
    return each(gate_rows.next_in_line(key, room), partial(_let_go, key))


def hand_on(key: str) -> None:
    """A step that had passed the gate has settled: the next in line may go, without a sweep.

    A database that is away is the sweep's affair.
    """
    try:
        let_through(key)
    except (OperationalError, InterfaceError):
        logger.warning("gate %s: the database is away, the sweep hands on its place", key)


def _let_go(key: str, found: InLine) -> bool:
    with Unit("let_go"):
        run = rows.lock_run(found.run_id, skip_locked=True)
        row = rows.read_step(found.step_id) if run is not None else None
        if run is None or row is None or run.ended or row.waiting_key != key:
            return False
        if row.state != StepState.WAITING or row.waiting_for != "service":
            return False
        other = _other_gate(run, row, key)
        if other is not None:
            gate_rows.change_line(row.id, key, other)
            return True
        if gate_rows.room(key, lock=True) < 1:
            return False
        ref = Ref(row.position, row.index)
        decision = planning.let_go(compiled(run.blueprint_id), run.snapshot, ref, key)
        if decision is None:
            return False
        queued = ref in decision.dispatch
        _write(run, row, decision, StepState.READY, {"passed": key, "queued": queued})
    return True


def _other_gate(run: RunRow, row: StepRow, key: str) -> Gate | None:
    step = compiled(run.blueprint_id).steps[row.position]
    gates = gates_before(run.tenant, step, row)
    return next((gate for gate in gates if gate.allows == 0 and gate.key != key), None)
