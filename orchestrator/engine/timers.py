"""Due timers and runs whose time is over. Never early, once, by the database's clock."""

from __future__ import annotations

import time
from functools import partial
from uuid import UUID

from orchestrator.core import planning
from orchestrator.core.decision import EventDraft, Ref
from orchestrator.core.errors import ErrorClass, StepError
from orchestrator.core.outcomes import Answer, Failed
from orchestrator.core.states import StepState
from orchestrator.crash import Unit
from orchestrator.engine import outbox
from orchestrator.engine.blueprints import compiled
from orchestrator.engine.control import apply_control
from orchestrator.engine.inbox import end_wait
from orchestrator.engine.settle import apply_change
from orchestrator.engine.settled import Settled, send_all
from orchestrator.engine.sweeping import each
from orchestrator.engine.unwritable import or_refused
from orchestrator.engine.values import Values
from orchestrator.engine.waking import ready_again, wake_plainly
from orchestrator.models import direct, outbox_rows, rows, sweeps
from orchestrator.models.rows import RunRow, StepRow
from orchestrator.models.sweeps import DueTimer

BURST_S = 3.0
"""So long a round goes on firing before it sends the messages: of many timers due at once those in
front do not keep the others waiting."""


def fire_due(limit: int = 200) -> int:
    """Fire the timers that are due, each in its own transaction; how many."""
    if not direct.is_free():
        return each(sweeps.due_timers(limit), _fire)
    done, woken = 0, list[Settled]()
    give_up_at = time.monotonic() + BURST_S
    try:
        while True:
            due = sweeps.due_timers(limit)
            plainly = wake_plainly(due)
            woken += plainly.values()
            fired = len(plainly) + each([one for one in due if one.id not in plainly], _fire)
            done += fired
            # Where another sweep is at the same timers, the rest is its own.
            if len(due) < limit or fired < limit // 2 or time.monotonic() > give_up_at:
                return done
    finally:
        send_all(woken)


def _fire(timer: DueTimer) -> bool:
    """False when another sweep is at it, or an answer came first."""
    return or_refused(partial(_try, timer), "what the end of the wait means")


def _try(timer: DueTimer, refused: StepError | None) -> bool:
    with Unit("timer"):
        run = rows.lock_run(timer.run_id, skip_locked=True)
        if run is None or not sweeps.is_due(timer.id):
            return False
        sweeps.drop_timer(timer.id)
        row = rows.read_step(timer.step_id)
        if row is None or run.ended:
            return False
        if timer.kind in ("retry", "repeat"):
            settled = _wake(run, row)
        else:
            settled = _expire(run, row, refused)
    if settled is None:
        return False
    settled.send()
    outbox.handle(settled.posted)
    return True


def _wake(run: RunRow, row: StepRow) -> Settled | None:
    workflow = compiled(run.blueprint_id)
    change = ready_again(run, row, workflow)
    if change is None:
        return None
    settled = Settled(run=run, workflow=workflow)
    apply_change(change, Values(run, workflow), settled)
    return settled


def _expire(run: RunRow, row: StepRow, refused: StepError | None) -> Settled | None:
    """A wait has reached its due time: the executor says what that means."""
    if row.state != StepState.WAITING:
        return None
    workflow = compiled(run.blueprint_id)
    fired = EventDraft("timer.fired", Ref(row.position, row.index), {"kind": "wait"})
    outcome = None if refused is None else Failed(error=refused)
    if outcome is None and row.waiting_for == "child":
        message = "the child workflow did not end in time"
        outcome = Failed(error=StepError(error_class=ErrorClass.TIMEOUT, message=message))
    settled, state = end_wait(
        run,
        workflow,
        Values(run, workflow),
        row,
        Answer(kind="timer"),
        first=fired,
        outcome=outcome,
    )
    if row.waiting_for == "child":
        named = {"step_id": str(row.id)}
        settled.posted.append(outbox_rows.post("child.cancel", run.id, named))
    if row.waiting_for == "person" and state is not StepState.WAITING:
        payload = {"step": row.key, "scope": row.scope, "attempt": row.attempt}
        settled.posted.append(
            outbox_rows.post("gate.closed", run.id, payload | {"reason": "timeout"})
        )
    return settled


def end_overdue(limit: int = 100) -> int:
    """Time out the runs whose own time is over; how many."""
    return each(sweeps.overdue_runs(limit), _end)


def _end(run_id: UUID) -> bool:
    with Unit("overdue"):
        run = rows.lock_run(run_id, skip_locked=True)
        if run is None or run.ended or not sweeps.is_overdue(run_id):
            return False
        workflow = compiled(run.blueprint_id)
        clock = "by the clock" if workflow.timeout_is_wall else "of working time"
        message = f"the run took longer than {workflow.timeout_s:g} s {clock}"
        decision = planning.time_out(workflow, run.snapshot, message=message)
        if decision is None:
            return False
        apply_control(run, decision, actor="system:timeout")
    return True
