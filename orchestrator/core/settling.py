"""What one attempt's answer means for its own step or item: done, again, retry, park, give up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_never

from orchestrator.core import admission
from orchestrator.core.compiled import StepPlan
from orchestrator.core.decision import Ref, Subject
from orchestrator.core.errors import ConditionError, ErrorClass, InvariantBroken, StepError
from orchestrator.core.outcomes import (
    EndRun,
    Failed,
    Outcome,
    Routed,
    StartChild,
    Succeeded,
    UndoChildren,
    Waiting,
)
from orchestrator.core.propagation import Turn
from orchestrator.core.retry import next_delay
from orchestrator.core.snapshot import WAIT_CODES, WAIT_WORDS, Code, Loop, Verdict
from orchestrator.core.states import RunState, StepState
from orchestrator.core.undo_steps import UNDO_CHILD


@dataclass(frozen=True, slots=True, kw_only=True)
class Expanded:
    """A for_each looked at its list: so many items. ``only``: a compensation undoes just these."""

    total: int
    only: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class NotBegun:
    """The worker gives back what it had claimed in company: the body did not begin, and the claim
    does not count as an attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """What one attempt answered, with the numbers that retry and repeat need.

    ``waited_for`` is the kind of the wait that this answer ends, empty when a body ran;
    ``round_number`` counts from 1; ``jitter`` lies in [0, 1). ``in_doubt``: the key of the effect
    that the failed attempt leaves in doubt.
    """

    ref: Ref
    outcome: Outcome | Expanded | NotBegun
    waited_for: str = ""
    n_retries: int = 0
    n_lost: int = 0
    round_number: int = 1
    jitter: float = 0.0
    in_doubt: str = ""
    warning: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class _Done:
    routes: tuple[str, ...] | None = None
    ends_run: str = ""


@dataclass(frozen=True, slots=True)
class _Again:
    delay: float


@dataclass(frozen=True, slots=True)
class _Retry:
    error: dict[str, Any]
    delay: float
    drawn: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _GiveUp:
    error: dict[str, Any]
    timed_out: bool


@dataclass(frozen=True, slots=True)
class _Park:
    kind: str
    why: str


@dataclass(frozen=True, slots=True)
class _Loop:
    total: int
    only: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class _Back:
    """Never begun: READY as before."""


@dataclass(frozen=True, slots=True)
class _Stop:
    """The run is ending: the step would wait, or spread out, and is cancelled instead."""


Move = _Done | _Again | _Retry | _GiveUp | _Park | _Loop | _Back | _Stop


def leave(turn: Turn, ref: Ref, waited_for: str) -> None:
    """Whatever the answer: the body, or the wait, is over."""
    if ref.item is not None:
        loop = turn.snapshot.loops[ref.position]
        if waited_for:
            take_wait(loop, waited_for)
            return
        loop.running -= 1
    elif waited_for:
        return
    turn.snapshot.running -= 1


def take_wait(loop: Loop, kind: str) -> bool:
    """One item waits no more for ``kind``; False when none did."""
    if not loop.waits.get(kind):
        return False
    loop.waits[kind] -= 1
    return True


def next_move(turn: Turn, step: StepPlan, fact: Fact) -> Move:
    """What the answer means, before it is carried out."""
    outcome = fact.outcome
    if fact.warning is not None:
        turn.snapshot.warnings.append(fact.warning)
    match outcome:
        case Succeeded():
            return _after_success(turn, step, fact, outcome.output)
        case Routed():
            chosen = list(outcome.routes)
            turn.emit("router.decided", fact.ref, routes=chosen, why=outcome.why, **outcome.details)
            return _Done(routes=outcome.routes)
        case EndRun():
            return _Done(ends_run=outcome.outcome)
        case Failed():
            return _after_failure(turn, step, fact, outcome)
        case Waiting() | StartChild() | UndoChildren() | Expanded() | NotBegun():
            return _stay(turn, step, fact.ref, outcome)
        case _:
            assert_never(outcome)


def _stay(
    turn: Turn,
    step: StepPlan,
    ref: Ref,
    outcome: Waiting | StartChild | UndoChildren | Expanded | NotBegun,
) -> Move:
    """Not done, and no body runs: the step waits, or its items do the work."""
    if isinstance(outcome, Expanded):
        turn.emit("step.expanded", ref, items=outcome.total)
    in_doubt = isinstance(outcome, Waiting) and outcome.kind == "review"
    if turn.snapshot.verdict is not None and step.undoes is None and not in_doubt:
        return _Stop()
    match outcome:
        case Waiting():
            return _Park(outcome.kind, outcome.why)
        case StartChild():
            return _Park("child", f"child workflow {outcome.name}")
        case UndoChildren():
            return _Park("child", f"child workflow {outcome.name} is undone")
        case Expanded():
            return _Loop(outcome.total, outcome.only)
        case NotBegun():
            return _Back()


def _after_success(turn: Turn, step: StepPlan, fact: Fact, output: Any) -> Move:
    repeat = step.repeat
    if repeat is None or turn.snapshot.verdict is not None:
        return _Done()
    try:
        finished = turn.ask("until", lambda: turn.conditions.until(fact.ref, output))
    except ConditionError as error:
        shape = StepError(error_class=ErrorClass.CONDITION_ERROR, message=str(error))
        return _GiveUp(shape.as_json(), timed_out=False)
    turn.emit("step.repeated", fact.ref, round=fact.round_number, done=finished)
    if finished:
        return _Done()
    if fact.round_number < repeat.max_rounds:
        return _Again(repeat.delay)
    if not repeat.fail_when_exhausted:
        return _Done()
    shape = StepError(
        error_class=ErrorClass.REPEAT_EXHAUSTED,
        message=f"the condition did not hold after {fact.round_number} rounds",
    )
    return _GiveUp(shape.as_json(), timed_out=False)


def _after_failure(turn: Turn, step: StepPlan, fact: Fact, outcome: Failed) -> Move:
    error = outcome.error
    if fact.waited_for == "child" and step.undoes is None and _child_acted(error):
        turn.note_acted(step.position, UNDO_CHILD)
    delay = next_delay(
        step.retry,
        error.error_class,
        n_retries=fact.n_retries,
        n_lost=fact.n_lost,
        jitter=fact.jitter,
        retry_after=outcome.retry_after,
    )
    goes_on = turn.snapshot.verdict is None or step.undoes is not None
    if delay is not None and goes_on:
        drawn = {"jitter": fact.jitter} if delay else {}
        if outcome.retry_after is not None:
            drawn["retry_after"] = outcome.retry_after
        return _Retry(error.as_json(), delay, drawn)
    if fact.in_doubt and step.must_know:  # what may have happened cannot be given up, or undone
        return _Park("review", f"effect {fact.in_doubt} is in doubt: {error.message}")
    return _GiveUp(error.as_json(), timed_out=error.error_class is ErrorClass.TIMEOUT)


def _child_acted(error: StepError) -> bool:
    """Whether a child that did not complete has undone something, or may yet have to: one whose
    time is over has still to end."""
    left = (error.details or {}).get("compensation")
    return error.error_class is ErrorClass.TIMEOUT or left in ("full", "partial")


def move_step(turn: Turn, step: StepPlan, ref: Ref, move: Move) -> None:
    """Carry the move out on a plain step."""
    position = ref.position
    subject = Subject(ref=ref, to=StepState.COMPLETED)
    turn.decision.subject = subject
    match move:
        case _Done():
            _finish_step(turn, step, ref, move)
        case _Again() | _Retry() | _Park() | _Back():
            turn.assign(position, _postpone(turn, subject, move))
        case _GiveUp():
            turn.give_up(position, move.error, timed_out=move.timed_out)
            subject.to, subject.error = turn.snapshot.state(position), move.error
        case _Loop():
            subject.to, subject.loop_total = StepState.RUNNING, move.total
            turn.assign(position, Code.LOOPING)
            turn.snapshot.loops[position] = _new_loop(turn, step, move)
            if move.total == 0:
                turn.decision.loops_done.append(position)
        case _Stop():
            _stop(turn, subject)
            turn.assign(position, Code.CANCELLED)
            turn.decision.cancel_items.append(position)
        case _:
            assert_never(move)


def _new_loop(turn: Turn, step: StepPlan, move: _Loop) -> Loop:
    if step.undoes is None or move.only is None:
        return Loop(total=move.total)
    turn.decision.items_undoing += [Ref(step.undoes, index) for index in move.only]
    return Loop(total=move.total, released=move.total, again=list(move.only))


def _finish_step(turn: Turn, step: StepPlan, ref: Ref, move: _Done) -> None:
    if not move.ends_run:
        turn.complete(ref.position, routes=move.routes)
        return
    turn.assign(ref.position, Code.COMPLETED)
    turn.emit("step.completed", ref, ends_run=move.ends_run)
    turn.drain(Verdict(RunState.COMPLETED, outcome=move.ends_run, step=step.key))


def _postpone(turn: Turn, subject: Subject, move: _Again | _Retry | _Park | _Back) -> Code:
    """Not done yet: the code that the step has meanwhile. READY: it may run at once."""
    match move:
        case _Again():
            _again(turn, subject, move)
            return Code.WAIT_TIMER if move.delay else Code.READY
        case _Retry():
            _retry(turn, subject, move)
            return Code.RETRYING if move.delay else Code.READY
        case _Park():
            subject.to = StepState.WAITING
            turn.emit("step.waiting", subject.ref, waiting_for=move.kind, why=move.why)
            return WAIT_CODES[move.kind]
        case _Back():
            subject.to = StepState.READY
            turn.emit("step.ready", subject.ref, given_back=True)
            return Code.READY


def move_item(turn: Turn, step: StepPlan, ref: Ref, move: Move) -> None:
    """Carry the move out on one item of a for_each; closes the loop after its last one."""
    loop = turn.snapshot.loops[ref.position]
    subject = Subject(ref=ref, to=StepState.COMPLETED)
    turn.decision.subject = subject
    match move:
        case _Done():
            loop.ok += 1
            turn.decision.items_undone += _undone_by(step, ref)
            turn.emit(
                "step.completed", ref, **({"ends_run": move.ends_run} if move.ends_run else {})
            )
            if move.ends_run:
                turn.drain(Verdict(RunState.COMPLETED, outcome=move.ends_run, step=step.key))
        case _Again() | _Retry() | _Park() | _Back():
            _count_item(loop, ref, _postpone(turn, subject, move))
        case _GiveUp():
            loop.failed += 1
            turn.decision.items_kept += _undone_by(step, ref)
            subject.to = StepState.TIMED_OUT if move.timed_out else StepState.FAILED
            subject.error = move.error
            turn.emit(f"step.{subject.to}", ref, error=move.error)
        case _Stop():
            _stop(turn, subject)
            loop.released -= 1
            loop.total -= 1
        case _Loop():
            raise InvariantBroken(f"item {ref} of {step.key} was expanded again")
        case _:
            assert_never(move)
    _close_when_over(turn, step, loop)


def _undone_by(step: StepPlan, ref: Ref) -> list[Ref]:
    """The item that a compensation's item undoes."""
    return [] if step.undoes is None else [Ref(step.undoes, ref.item)]


def _count_item(loop: Loop, ref: Ref, code: Code) -> None:
    """An item's state is a count in its loop."""
    if code is Code.READY:
        if ref.item is not None:
            loop.ready.append(ref.item)
    elif code is Code.RETRYING:
        loop.retrying += 1
    else:
        kind = WAIT_WORDS[code]
        loop.waits[kind] = loop.waits.get(kind, 0) + 1


def _stop(turn: Turn, subject: Subject) -> None:
    subject.to = StepState.CANCELLED
    turn.emit("step.cancelled", subject.ref, reason="run_ending")


def _close_when_over(turn: Turn, step: StepPlan, loop: Loop) -> None:
    if loop.live or turn.snapshot.code(step.position) != Code.LOOPING:
        return
    lost = step.for_each is not None and admission.is_lost(step.for_each.min_success, loop)
    if loop.all_released or lost:
        turn.decision.loops_done.append(step.position)


def _again(turn: Turn, subject: Subject, move: _Again) -> None:
    subject.again = True
    if move.delay:
        subject.to, subject.wake_after, subject.wake_kind = StepState.WAITING, move.delay, "repeat"
        turn.emit("timer.set", subject.ref, kind="repeat", seconds=move.delay)
    else:
        subject.to = StepState.READY
        turn.emit("step.ready", subject.ref)


def _retry(turn: Turn, subject: Subject, move: _Retry) -> None:
    """Behind a timer, or (a lost worker) at once."""
    delay_s = round(move.delay, 3)
    turn.emit("step.retry_scheduled", subject.ref, delay_s=delay_s, error=move.error, **move.drawn)
    subject.error = move.error
    if move.delay:
        subject.to = StepState.RETRYING
        subject.wake_after, subject.wake_kind = move.delay, "retry"
    else:
        subject.to = StepState.READY
        turn.emit("step.ready", subject.ref)
