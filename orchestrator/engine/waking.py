"""Ending many waits at once: decided from one read, written in one pipeline, told in one batch.

Only what is plain goes this way. Whatever is not, whatever moved meanwhile and whatever raises is
left to the way that takes the run's lock.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from orchestrator.core import planning
from orchestrator.core.compiled import CompiledWorkflow
from orchestrator.core.decision import EventDraft, Ref
from orchestrator.core.errors import OrchestratorError
from orchestrator.core.outcomes import Answer
from orchestrator.core.states import StepState
from orchestrator.engine.blueprints import compiled
from orchestrator.engine.change import Change
from orchestrator.engine.plain_waking import plain_waking
from orchestrator.engine.settle import decide
from orchestrator.engine.settled import Settled
from orchestrator.engine.values import Values
from orchestrator.executors.registry import get_executor
from orchestrator.models import rows
from orchestrator.models.rows import DueStep, RunRow, StepRow
from orchestrator.models.sweeps import DueTimer
from orchestrator.models.wake import Wake, wake_each

logger = logging.getLogger(__name__)

_BY_TIME = frozenset({"timer", "signal"})


def wake_plainly(due: Sequence[DueTimer]) -> dict[int, Settled]:
    """Fire those of the timers that are plain, each in its own transaction; by the timer's id what
    is still to be sent. Call with no transaction open."""
    planned: dict[int, tuple[Change, Wake]] = {}
    for found in rows.read_due([timer.id for timer in due]):
        plan = _plan(found)
        if plan is not None:
            planned[found.timer_id] = plan
    if not planned:
        return {}
    written = wake_each([move for _, move in planned.values()])
    return {
        timer: Settled(run=change.run, workflow=change.workflow, dispatch=change.decision.dispatch)
        for (timer, (change, _)), done in zip(planned.items(), written, strict=True)
        if done
    }


def _plan(found: DueStep) -> tuple[Change, Wake] | None:
    """What firing this timer leads to, if it is plain."""
    run, row = found.run, found.step
    if run.ended or run.snapshot.loops:
        return None
    try:
        workflow = compiled(run.blueprint_id)
        change = _change(found.kind, run, row, workflow)
        if change is None or not _stands_alone(change):
            return None
        move = plain_waking(change, None)
    except OrchestratorError:  # met again, and told, under the run's lock
        logger.debug("timer %s is not plain", found.timer_id, exc_info=True)
        return None
    return None if move is None else (change, move)


def _change(kind: str, run: RunRow, row: StepRow, workflow: CompiledWorkflow) -> Change | None:
    if kind in ("retry", "repeat"):
        return ready_again(run, row, workflow)
    if row.state != StepState.WAITING or row.waiting_for not in _BY_TIME:
        return None
    step = workflow.steps[row.position]
    answer = Answer(kind="timer")
    outcome = get_executor(step.type).resume(step.config, answer, upstream=row.input)
    change = decide(run, workflow, Values(run, workflow), row, outcome)
    fired = EventDraft("timer.fired", Ref(row.position, row.index), {"kind": "wait"})
    change.decision.events.insert(0, fired)
    return change


def ready_again(run: RunRow, row: StepRow, workflow: CompiledWorkflow) -> Change | None:
    """Back-off is over: the step is READY again. None when it waits for no timer."""
    if row.state not in (StepState.RETRYING, StepState.WAITING):
        return None
    ref = Ref(row.position, row.index)
    retries = row.state == StepState.RETRYING
    decision = planning.wake(workflow, run.snapshot, ref, retries=retries)
    if decision is None:
        logger.error("timer of step %s found no wait in the run's state", row.id)
        return None
    decision.events.insert(0, EventDraft("timer.fired", ref, {}))
    change = Change(run=run, workflow=workflow, decision=decision)
    change.subject = {
        "id": str(row.id),
        "from": row.state,
        "fence": row.fence,
        "to": str(StepState.READY),
        "queued": ref in decision.dispatch,
        "cost": 0,
    }
    return change


def _stands_alone(change: Change) -> bool:
    """Whether one statement writes all of it, and messages go to no other step than its own."""
    decision = change.decision
    own = {*decision.ready, *(() if decision.subject is None else (decision.subject.ref,))}
    return decision.is_plain and not decision.carried and own.issuperset(decision.dispatch)
