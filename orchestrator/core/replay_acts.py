"""What may happen to a run, one act a fact: read from its recorded lines, and decided anew."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from orchestrator.core import planning
from orchestrator.core.decision import DECISIONS, EventDraft, Ref
from orchestrator.core.gates import Gate
from orchestrator.core.outcomes import StartChild, UndoChildren, Waiting
from orchestrator.core.replay_facts import EFFECT_ENDS, Settled, diverge, main_line, read_settled
from orchestrator.core.replay_log import Recorded
from orchestrator.core.replay_machine import Replay
from orchestrator.core.replay_rows import SECOND, Row
from orchestrator.core.settling import Expanded, Fact, NotBegun
from orchestrator.core.states import RunState, StepState

_ROUNDING = SECOND // 1000


def _begin(replay: Replay, head: Recorded) -> None:
    decisions = head.payload.get("decisions")
    if head.seq != 1:
        diverge(head, "run.started once, and first", head)
    if decisions != DECISIONS:
        diverge(head, f"decisions of version {DECISIONS}", head)
    replay.follow(planning.begin(replay.workflow, replay.conditions), before=1)


def _claim(replay: Replay, head: Recorded) -> None:
    ref = replay.ref(head)
    decision = planning.claim(replay.workflow, replay.snapshot, ref)
    if decision is None:
        state = replay.snapshot.state(ref.position)
        diverge(head, f"no start: {head.step} is {state}, or the run starts nothing", head)
    attempt = replay.rows.start(ref)
    decision.events.append(EventDraft("step.started", ref, {"attempt": attempt}))
    intent = replay.log.peek(1)
    if intent is not None and intent.type == "effect.intended":
        if replay.workflow.steps[ref.position].effect_key is None:
            diverge(intent, f"no effect: step {head.step} declares none", intent)
        decision.events.append(EventDraft(intent.type, ref, dict(intent.payload)))
    replay.follow(decision)


def settle(replay: Replay, head: Recorded) -> None:
    """A step was answered by its worker, or by what came before it began to wait; or it stood
    before a gate and was not started."""
    if head.type == "step.waiting" and "gate" in head.payload:
        _park(replay, head)
    else:
        settle_behind(replay, 0)


def _park(replay: Replay, head: Recorded) -> None:
    """What the gate said is recorded; that the step could be parked is decided anew."""
    said = head.payload
    gate = Gate(key=said["gate"], source="recorded", allows=0, why=said["why"])
    ref, state = replay.ref(head), RunState(replay.state)
    decision = planning.park(replay.workflow, replay.snapshot, ref, gate, state=state)
    if decision is None:
        diverge(head, f"no wait for {gate.key}: {head.step} is not ready", head)
    replay.follow(decision, waiting_for="service")


def _ready(replay: Replay, head: Recorded) -> None:
    """A gate let a step through, or a worker gave back what it had not begun."""
    if head.payload.get("given_back"):
        _give_back(replay, head)
    else:
        _let_go(replay, head)


def _give_back(replay: Replay, head: Recorded) -> None:
    ref = replay.ref(head)
    row = replay.row(head, ref)
    if row.state is not StepState.RUNNING:
        diverge(head, f"nothing given back: {head.step} is {row.state}", head)
    fact = Fact(ref=ref, outcome=NotBegun())
    decision = planning.settle(replay.workflow, replay.snapshot, fact, replay.conditions)
    row.attempt -= 1
    replay.follow(decision)


def _let_go(replay: Replay, head: Recorded) -> None:
    ref, key = replay.ref(head), head.payload.get("gate", "")
    decision = planning.let_go(replay.workflow, replay.snapshot, ref, key)
    if decision is None:
        diverge(head, f"no start: {head.step} waits for no gate", head)
    replay.follow(decision)


def settle_behind(replay: Replay, n_before: int) -> None:
    """A step was answered; ``n_before`` lines say by whom or by what."""
    line, _, before = main_line(replay.log, n_before)
    ref = replay.ref(line)
    row, step = replay.row(line, ref), replay.workflow.steps[ref.position]
    if row.state not in (StepState.RUNNING, StepState.WAITING):
        diverge(line, f"nothing of step {line.step}, which is {row.state}", line)
    if any(b.type in EFFECT_ENDS for b in before) and step.effect_key is None:
        diverge(before[0], f"no effect: step {line.step} declares none", before[0])
    settled = read_settled(replay.log, step, n_before)
    if isinstance(settled.outcome, Expanded) and step.undoes is not None:
        only = replay.rows.completed_items(step.undoes)
        settled.outcome = Expanded(total=len(only), only=only)
    waited_for = row.waiting_for if row.state is StepState.WAITING else ""
    _check_gate(line, settled, waited_for)
    fact = Fact(
        ref=ref,
        outcome=settled.outcome,
        waited_for=waited_for,
        n_retries=row.n_retries,
        n_lost=row.n_lost + settled.lost,
        round_number=row.round,
        jitter=settled.jitter,
        warning=settled.warning,
    )
    if isinstance(settled.outcome, Expanded) and settled.outcome.only is not None:
        replay.rows.expand_undo(ref.position, settled.outcome.only)
    elif isinstance(settled.outcome, Expanded):
        replay.rows.expand(ref.position, settled.outcome.total)
    decision = planning.settle(replay.workflow, replay.snapshot, fact, replay.conditions)
    replay.rows.settle(decision, settled.outcome, lost=settled.lost, at=line.at)
    stays = decision.subject is not None and decision.subject.to is StepState.WAITING
    replay.follow(
        decision,
        before=settled.n_before,
        after=(lambda n: _wait_facts(replay, row, settled, ref, n)) if stays else None,
        waiting_for=_waits_for(settled),
    )


def _check_gate(line: Recorded, settled: Settled, waited_for: str) -> None:
    """A person's wait that is over says how it was decided; nothing else does."""
    wanted = waited_for == "person" and not isinstance(settled.outcome, Waiting)
    if wanted is not settled.gate:
        diverge(line, f"{'a' if wanted else 'no'} gate.decided before it", line)


def _waits_for(settled: Settled) -> str:
    match settled.outcome:
        case Waiting(kind=kind):
            return kind
        case StartChild() | UndoChildren():
            return "child"
        case _:
            return "timer"


def _wait_facts(replay: Replay, row: Row, settled: Settled, ref: Ref, n: int) -> list[EventDraft]:
    """What a wait begins with: the question to people, the child, the timer."""
    facts: list[EventDraft] = []
    if isinstance(settled.outcome, StartChild):
        line = replay.log.peek(n)
        child = line.payload.get("child") if line is not None else None
        named = {"workflow": settled.outcome.name, "child": child}
        return [EventDraft("child.started", ref, named)]
    if not isinstance(settled.outcome, Waiting):
        return facts
    if settled.outcome.kind == "person":
        facts.append(EventDraft("gate.opened", ref, {"why": settled.outcome.why}))
    timer = replay.log.peek(n + len(facts))
    if timer is not None and timer.type == "timer.set" and timer.payload.get("kind") == "wait":
        facts.append(EventDraft(timer.type, ref, dict(timer.payload)))
        row.due = _due(timer)
    return facts


def _due(timer: Recorded) -> int:
    if "at" in timer.payload:
        return round(datetime.fromisoformat(timer.payload["at"]).timestamp() * SECOND)
    seconds: float = timer.payload["seconds"]
    return timer.at + round(seconds * SECOND)


def _fire(replay: Replay, head: Recorded) -> None:
    """A timer: a wait has reached its time, or a step is due to run again. Never early."""
    ref = replay.ref(head)
    row = replay.row(head, ref)
    if row.due is not None and head.at < row.due - _ROUNDING:
        early = (row.due - head.at) / SECOND
        diverge(head, f"no timer of {head.step} for another {early:g} s", head)
    row.due = None
    if head.payload.get("kind") == "wait":
        _end_wait(replay, head)
        return
    retries = row.state is StepState.RETRYING
    decision = planning.wake(replay.workflow, replay.snapshot, ref, retries=retries)
    if decision is None:
        diverge(head, f"no timer: {head.step} is {row.state}", head)
    replay.follow(decision, before=1)


def _end_wait(replay: Replay, _: Recorded) -> None:
    settle_behind(replay, 1)


def _signal(replay: Replay, head: Recorded) -> None:
    """Stored for whoever will wait for it, or applied at once."""
    if "for" not in head.payload:
        replay.note()
        return
    line, _, _ = main_line(replay.log, 1)
    if line.step != head.payload["for"]:
        diverge(line, f"an answer for {head.payload['for']}", line)
    settle_behind(replay, 1)


def _pause(replay: Replay, head: Recorded) -> None:
    reason = head.payload["reason"]
    replay.follow(planning.pause(replay.workflow, replay.snapshot, reason=reason))


def _resume(replay: Replay, head: Recorded) -> None:
    reason = head.payload["reason"]
    replay.follow(planning.resume(replay.workflow, replay.snapshot, reason=reason))


def _cancel(replay: Replay, head: Recorded) -> None:
    reason = head.payload["reason"]
    replay.follow(planning.cancel(replay.workflow, replay.snapshot, reason=reason))


def _time_out(replay: Replay, head: Recorded) -> None:
    message = head.payload["message"]
    decision = planning.time_out(replay.workflow, replay.snapshot, message=message)
    if decision is None:
        diverge(head, "no end: nothing is left that could be ended", head)
    replay.follow(decision)


ACTS: dict[str, Callable[[Replay, Recorded], None]] = {
    "run.started": _begin,
    "step.ready": _ready,
    "step.started": _claim,
    "timer.fired": _fire,
    "child.finished": _end_wait,
    "child.undone": _end_wait,
    "signal.received": _signal,
    "run.paused": _pause,
    "run.resumed": _resume,
    "run.cancelling": _cancel,
    "run.timing_out": _time_out,
}
