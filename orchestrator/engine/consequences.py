"""What an answer leaves beside its step's move: timers, attempts, dead letters, a child run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from orchestrator.core.decision import Subject
from orchestrator.core.errors import ErrorClass
from orchestrator.core.outcomes import Failed, Outcome, StartChild, UndoChildren, Waiting
from orchestrator.core.settling import Expanded, NotBegun
from orchestrator.core.states import StepState
from orchestrator.engine import children
from orchestrator.engine.change import Change
from orchestrator.engine.settled import Settled
from orchestrator.models import attempts, timer_rows
from orchestrator.models.rows import StepRow

_NO_DEAD_LETTER = frozenset({ErrorClass.REJECTED, ErrorClass.CANCELLED})
_ENDS = frozenset({StepState.FAILED, StepState.TIMED_OUT, StepState.SKIPPED})


def write_consequences(
    change: Change,
    row: StepRow,
    outcome: Outcome | Expanded | NotBegun,
    settled: Settled,
    *,
    lost: bool,
) -> None:
    """Write them in the transaction of the move. ``row`` is the step as it was before."""
    subject = change.decision.subject
    if subject is None:
        return
    if subject.wake_after is not None:
        timer_rows.set_timer(change.run.id, row.id, subject.wake_kind, subject.wake_after)
    if isinstance(outcome, Failed):
        _record_failure(change, row, outcome, subject, lost=lost)
    elif subject.to is StepState.WAITING:  # else the run is ending, and nothing is begun
        _begin_wait(change, row, outcome, settled)


def wait_alone(change: Change, outcome: Waiting) -> None:
    """The wait's timer goes with the step's move, which is refused when the answer is here already:
    then the run's lock is taken, and it is consumed."""
    if change.subject is None or change.subject["to"] != StepState.WAITING:
        return
    timer: dict[str, Any] = {"unanswered": True}
    if isinstance(outcome.due, timedelta):
        timer |= {"kind": "wait", "seconds": outcome.due.total_seconds()}
    elif outcome.due is not None:
        timer |= {"kind": "wait", "at": outcome.due.isoformat()}
    change.subject["timer"] = timer


def _begin_wait(
    change: Change, row: StepRow, outcome: Outcome | Expanded | NotBegun, settled: Settled
) -> None:
    match outcome:
        case Waiting(due=due) if due is not None:
            after = due.total_seconds() if isinstance(due, timedelta) else due
            timer_rows.set_timer(change.run.id, row.id, "wait", after)
        case StartChild():
            settled.children.append(children.start_child(change, row, outcome))
            limit = change.workflow.steps[row.position].child_timeout_s
            if limit is not None:
                timer_rows.set_timer(change.run.id, row.id, "wait", limit)
        case UndoChildren():
            settled.posted += children.ask_to_undo(change.run.id, row)
        case _:
            pass


def _record_failure(
    change: Change, row: StepRow, outcome: Failed, subject: Subject, *, lost: bool
) -> None:
    error = outcome.error.as_json()
    if row.state == StepState.RUNNING:
        is_loss = outcome.error.error_class is ErrorClass.WORKER_LOST
        word = "worker_lost" if is_loss else str(subject.to)
        word = "in_doubt" if subject.to is StepState.WAITING else word
        attempts.record_attempt(row, outcome=word, error=error)
    if subject.to not in _ENDS or outcome.error.error_class in _NO_DEAD_LETTER:
        return
    step = change.workflow.steps[row.position]
    reason = "exhausted"
    if step.undoes is not None:
        reason = "compensation"
    elif lost:
        reason = "quarantined"
    elif outcome.error.error_class.value not in change.workflow.steps[row.position].retry.on:
        reason = "permanent"
    behind = step.service or str(step.config.get("model") or "")
    attempts.dead_letter(row.id, service=behind, reason=reason, error=error)
