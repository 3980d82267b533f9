"""Why a step has not ended yet, in one sentence for people; every open step has one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from orchestrator.core.admission import n_queued
from orchestrator.core.compiled import CompiledWorkflow, Join
from orchestrator.core.snapshot import Mark, Snapshot
from orchestrator.core.states import STEP_TERMINAL, RunState, StepState
from orchestrator.engine.explaining import at, length, moment, until, wait_reason
from orchestrator.engine.pictures import StepPicture

_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasons:
    """What there is to know of the run. ``undoing``: the compensation at work on a step, by the
    step's position; ``children``: the state of the runs that it has started."""

    workflow: CompiledWorkflow
    snapshot: Snapshot
    state: RunState
    now: datetime
    undoing: Mapping[int, StepPicture] = field(default_factory=dict)
    children: Mapping[UUID, str] = field(default_factory=dict)

    @property
    def paused(self) -> bool:
        """Whether nothing new starts until somebody resumes the run."""
        return self.state is RunState.PAUSED

    def of(self, step: StepPicture) -> str:
        """The sentence about this step; empty when it has ended."""
        tell = _TELL.get(step.state)
        if tell is None and self._is_undone_now(step):
            tell = _compensating
        return tell(self, step) if tell is not None else ""

    def _is_undone_now(self, step: StepPicture) -> bool:
        """Whether a compensation is at work on a step that has its end, and did not complete."""
        undo = self.undoing.get(step.position)
        return undo is not None and not step.scope and undo.state not in STEP_TERMINAL


def _ready(run: Reasons, step: StepPicture) -> str:
    since = f"Ready for {length(run.now - step.ready_at)}" if step.ready_at else "Ready"
    if run.paused:
        return f"{since}; it starts when the run is resumed."
    if step.dispatched_at is not None:
        sent = length(run.now - step.dispatched_at)
        return (
            f"{since}; waits for a worker on queue {step.queue}"
            f" (its message has been on its way for {sent})."
        )
    if run.workflow.max_parallel - run.snapshot.running - n_queued(run.snapshot) <= 0:
        most = run.workflow.max_parallel
        return f"{since}; waits for a free place: {most} of the run's steps may be at work at once."
    return f"{since}; its message to queue {step.queue} is about to be sent."


def _running(run: Reasons, step: StepPicture) -> str:
    if step.items is not None:
        counts = ", ".join(f"{n} {state}" for state, n in sorted(step.items.items()))
        return f"Its items are at work: {counts}."
    since = f" for {length(run.now - step.started_at)}" if step.started_at else ""
    words = f"Running{since} on worker {step.worker or 'unknown'} (attempt {step.attempt})"
    if step.lease_until is None:
        return f"{words}."
    if step.lease_until <= run.now:
        return (
            f"{words}; its lease ended at {moment(step.lease_until)}: the worker is lost or the"
            " step's time is over, and a sweep takes it up."
        )
    return f"{words}; its lease holds until {moment(step.lease_until)}."


def _retrying(run: Reasons, step: StepPicture) -> str:
    message = str((step.error or {}).get("message", "an error")).rstrip(".")
    held = ", once the run is resumed" if run.paused else ""
    return f"Attempt {step.attempt} failed ({message}); tried again{at(step.until, run.now)}{held}."


def _waiting(run: Reasons, step: StepPicture) -> str:
    words = wait_reason(step).rstrip(".")
    if step.waiting_for == "person":
        words = f"waits for {words}"
    if step.child is not None and step.child in run.children:
        words += f", which is {run.children[step.child]}"
    return f"{words[0].upper()}{words[1:]}{until(step, run.now)}."


def _blocked(run: Reasons, step: StepPicture) -> str:
    plan, snapshot = run.workflow.steps[step.position], run.snapshot
    if step.scope:
        return "Waits until other items of its loop have ended."
    if snapshot.verdict is not None:
        return "It will not start: the run is ending."
    if plan.owner is not None:
        return f"Runs only if {run.workflow.steps[plan.owner].key} gives up."
    open_ = [e.source for e in plan.ins if snapshot.marks[e.index] == Mark.OPEN]
    if open_:
        return f"Waits for {_needs(run, plan.join, plan.join_count, open_)}."
    if run.paused:
        return "Its needs are settled; it starts when the run is resumed."
    return "Its needs are settled; it starts with the run's next move."


def _needs(run: Reasons, join: Join, count: int, positions: list[int]) -> str:
    different = list(dict.fromkeys(positions))
    steps, snapshot = run.workflow.steps, run.snapshot
    named = [f"{steps[p].key} ({snapshot.state(p)})" for p in different[:_NAMED]]
    more = len(different) - len(named)
    text = ", ".join(named) + (f" and {more} more" if more else "")
    if join is not Join.AT_LEAST or len(different) == 1:
        return text
    return f"{'one' if count == 1 else f'{count} altogether'} of its needs, open are {text}"


def _compensating(run: Reasons, step: StepPicture) -> str:
    undo = run.undoing.get(step.position)
    words = run.of(undo) if undo is not None else ""
    if not words:
        return "Being undone by its compensation."
    return f"Being undone; its compensation: {words[0].lower()}{words[1:]}"


_TELL: Mapping[StepState, Callable[[Reasons, StepPicture], str]] = {
    StepState.READY: _ready,
    StepState.RUNNING: _running,
    StepState.RETRYING: _retrying,
    StepState.WAITING: _waiting,
    StepState.BLOCKED: _blocked,
    StepState.COMPENSATING: _compensating,
}
