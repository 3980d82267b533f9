"""A worker takes a step: by one statement where its place is kept, else by a decision."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import connection, transaction

from orchestrator.conf import engine_settings
from orchestrator.core import planning
from orchestrator.core.admission import Lane
from orchestrator.core.decision import Ref
from orchestrator.core.endings import Tally
from orchestrator.core.errors import InvariantBroken, StepError
from orchestrator.core.gates import Gate, passing
from orchestrator.core.states import RunState, StepState
from orchestrator.crash import Unit
from orchestrator.engine import gates, parking
from orchestrator.engine.blueprints import compiled
from orchestrator.engine.change import Change
from orchestrator.engine.pace import pace
from orchestrator.engine.settled import Settled
from orchestrator.engine.values import Values
from orchestrator.engine.work import (
    Prepared,
    Work,
    prepare,
    worker_name,
)
from orchestrator.engine.writing import mark_known_rows, write
from orchestrator.models import rows
from orchestrator.models.moves import MovedOn, StaleFence
from orchestrator.models.rows import RunRow, StepRow

_OPTIMISTIC_TRIES = 2
_TAKEN_AT_BIRTH = 2
"""The version of a run whose first move since its birth was a claim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a message asks for: a step of a run, and what its canvas brings later by itself.
    ``refused``: its input could not be stored, so it is claimed to fail with this."""

    run_id: UUID
    key: str
    scope: str = ""
    carried: Collection[str] = ()
    refused: StepError | None = None


def claim(order: Order) -> Work | None:
    """Take the step under a lease, or None: it is not READY, or its run starts nothing now.

    Optimistic while the run is at rest; with others at work, under the run's lock at once.
    """
    for attempt in range(_OPTIMISTIC_TRIES + 1):
        try:
            if attempt < _OPTIMISTIC_TRIES:
                return _claim_read(order)
            with Unit("claim"):
                return _claim_locked(order)
        except _Crowded:
            with Unit("claim"):
                return _claim_locked(order)
        except MovedOn:
            continue  # somebody else moved the run between our read and our write
        except StaleFence:
            return None
    return None


class _Crowded(Exception):
    """Others of the run are at work, so an optimistic claim would likely lose."""


def _claim_read(order: Order) -> Work | None:
    asked_at = time.monotonic()
    lease = engine_settings().lease
    taken = rows.take(order.run_id, order.key, order.scope, worker=worker_name(), lease=lease)
    if taken is None:
        return None
    if not taken.guarded:
        gates.cache.learn_open()
    if taken.at is not None and taken.fence is not None:
        return _taken(order, taken, taken.at, taken.fence, asked_at)
    if taken.run.snapshot.running > 0:
        raise _Crowded
    return _claim_found((taken.run, taken.step), order.refused)


def _taken(
    order: Order, taken: rows.Taken, at: datetime, fence: int, asked_at: float
) -> Work | None:
    """The place was kept, so the claim is written already; work out what it holds."""
    run, row = taken.run, taken.step
    workflow = compiled(run.blueprint_id)
    if run.version + 1 == taken.version:
        decision = planning.claim(workflow, run.snapshot, Ref(row.position, row.index))
        if decision is None:
            raise InvariantBroken(f"step {row.id} was taken, and planning would not have it")
        run.snapshot, run.version, run.state = decision.snapshot, run.version + 1, RunState.RUNNING
    else:  # somebody moved the run while we waited for its lock: look at what there is now
        found = rows.read_work(order.run_id, order.key, order.scope)
        if found is None or found[1].state != StepState.RUNNING:
            return None
        run, row = found
        row.attempt -= 1  # counted by the claim already
        if row.fence != fence:
            return None
    if run.version == _TAKEN_AT_BIRTH:
        run.tally = Tally()
    row.fence = fence - 1  # as before the claim
    values = Values(run, workflow)
    settled = Settled(
        run=run,
        workflow=workflow,
        claim=Ref(row.position, row.index),
        claim_row=row,
        prepared=prepare(values, workflow.steps[row.position], row),
        at=at,
        asked_at=asked_at,
    )
    work = work_of(settled, run, values)
    if work is not None:
        work.owes_input = True
    return work


def _claim_locked(order: Order) -> Work | None:
    run = rows.lock_run(order.run_id)
    row = rows.read_item(order.run_id, order.key, order.scope) if run is not None else None
    return None if run is None or row is None else _claim_found((run, row), order.refused)


def _claim_found(found: tuple[RunRow, StepRow], refused: StepError | None) -> Work | None:
    run, row = found
    if run.ended or row.state != StepState.READY:
        return None
    workflow = compiled(run.blueprint_id)
    before = gates.gates_before(run.tenant, workflow.steps[row.position], row)
    if before and not _passes(run, row, before):
        return None
    ref = Ref(row.position, row.index)
    decision = planning.claim(workflow, run.snapshot, ref, lane=_looking(row))
    if decision is None:
        return None
    values = Values(run, workflow)
    change = Change(run=run, workflow=workflow, decision=decision, claim_row=row)
    change.passed = row.passed
    if refused is not None:
        change.prepared = Prepared(error=refused)
    else:
        change.prepared = prepare(values, workflow.steps[row.position], row)
    settled = Settled(
        run=run,
        workflow=workflow,
        dispatch=decision.dispatch,
        claim=decision.claim,
        claim_row=row,
        prepared=change.prepared,
        at=write(change, values),
        asked_at=change.asked_at,
    )
    if decision.dispatch:
        mark_known_rows(change)
        transaction.on_commit(settled.send)
    return work_of(settled, run, values)


def _looking(row: StepRow) -> Lane | None:
    """Takes nothing; by its pace it is known how many messages the rest is worth."""
    if not engine_settings().fuse:
        return None
    return Lane(queue=row.queue, takes_next=False, pace=pace.known())


def _passes(run: RunRow, row: StepRow, before: Sequence[Gate]) -> bool:
    """Whether the step may go through the gates before it; else it is parked."""
    if not connection.in_atomic_block:
        raise _Crowded  # to count and to park takes the run's lock
    closed = gates.shut_or_full(before)
    if closed is not None:
        parking.park(run, row, closed)
        return False
    row.passed = passing(before).key
    return True


def work_of(settled: Settled, run: RunRow, values: Values) -> Work | None:
    """The attempt that a committed claim gave us."""
    ref, row = settled.claim, settled.claim_row
    if ref is None or row is None or settled.prepared is None or settled.at is None:
        return None
    values.see(run.snapshot)
    work = _attempt(settled, values, row, settled.prepared, settled.at)
    work.company = [
        _attempt(settled, values, one.row, one.prepared, settled.at)
        for one in settled.company
        if one.row is not None
    ]
    return work


def _attempt(
    settled: Settled, values: Values, row: StepRow, prepared: Prepared, at: datetime
) -> Work:
    row.fence += 1
    row.attempt += 1
    row.state = StepState.RUNNING
    row.waiting_for = ""
    row.started_at = at
    row.input = prepared.input
    return Work(
        run=settled.run,
        workflow=settled.workflow,
        values=values,
        step=settled.workflow.steps[row.position],
        row=row,
        prepared=prepared,
        at=at,
        asked_at=settled.asked_at,
    )
