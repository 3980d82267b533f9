"""The heart: from a run's stored state and one fact to everything that must happen next.

Every function is pure: the same workflow, snapshot, fact and condition values give the same
decision. Live running and replay call the same functions. Random numbers, ids and instants come
in as values.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from orchestrator.core import admission, settling, standing, undoing
from orchestrator.core.admission import Lane
from orchestrator.core.compiled import CompiledWorkflow, Edge, StepPlan
from orchestrator.core.decision import Decision, Ref, Subject
from orchestrator.core.errors import ErrorClass, InvariantBroken, StateConflict, StepError
from orchestrator.core.gates import Gate
from orchestrator.core.propagation import Conditions, Turn
from orchestrator.core.settling import Fact
from orchestrator.core.snapshot import QUEUED, Code, Loop, Snapshot, Verdict
from orchestrator.core.states import RUN_TERMINAL, RunState, StepState


def begin(workflow: CompiledWorkflow, conditions: Conditions) -> Decision:
    """A run is born: steps without needs are READY or skipped, and dispatched."""
    fresh = Snapshot.fresh(len(workflow.steps), len(workflow.edges))
    turn = Turn(workflow, fresh, conditions)
    turn.enter()
    decision = _concluded(turn)
    if decision.run_state is RunState.RUNNING:
        decision.run_state = RunState.PENDING
    return decision


def _concluded(turn: Turn, lane: Lane | None = None, *, near: int | None = None) -> Decision:
    """Choose what starts, and say where the run stands; a run that fails starts to be undone."""
    decision = turn.decision
    admission.admit(turn.workflow, decision, lane, near=near)
    standing.stand(turn)
    if decision.undoing:
        admission.admit(turn.workflow, decision, lane if decision.claim is None else None)
    return decision


def claim(
    workflow: CompiledWorkflow, snapshot: Snapshot, ref: Ref, *, lane: Lane | None = None
) -> Decision | None:
    """A worker asks for this step; None when it is not READY or the run starts nothing now.

    A ``lane`` that takes nothing tells how many messages are worth sending for the rest."""
    undoes = workflow.steps[ref.position].undoes is not None
    halted = snapshot.paused or snapshot.verdict is not None or snapshot.undo is not None
    if (halted and not undoes) or not _is_ready(snapshot, ref):
        return None
    state = RunState.COMPENSATING if undoes else RunState.RUNNING
    decision = Decision(snapshot=snapshot.copy(), run_state=state)
    admission.start(decision.snapshot, ref)
    if decision.snapshot.running > workflow.max_parallel:
        return None
    if admission.n_queued(decision.snapshot) < admission.FEW_QUEUED:
        admission.admit(workflow, decision, lane)
    decision.claim = ref
    return decision


def _is_ready(snapshot: Snapshot, ref: Ref) -> bool:
    if ref.item is None:
        return snapshot.code(ref.position) == Code.READY
    loop = snapshot.loops.get(ref.position)
    return loop is not None and (ref.item in loop.ready or ref.item in loop.queued)


def settle(
    workflow: CompiledWorkflow,
    snapshot: Snapshot,
    fact: Fact,
    conditions: Conditions,
    *,
    lane: Lane | None = None,
) -> Decision:
    """An attempt, or a wait, has an answer. The fence is proved by the caller."""
    turn = Turn(workflow, snapshot, conditions)
    settling.leave(turn, fact.ref, fact.waited_for)
    step = workflow.steps[fact.ref.position]
    move = settling.next_move(turn, step, fact)
    if fact.ref.item is None:
        settling.move_step(turn, step, fact.ref, move)
    else:
        settling.move_item(turn, step, fact.ref, move)
    if turn.decision.loops_done:  # ``close_loop`` follows, and chooses what starts
        standing.stand(turn)
        return turn.decision
    return _concluded(turn, lane, near=fact.ref.position)


def settle_many(
    workflow: CompiledWorkflow,
    snapshot: Snapshot,
    facts: Iterable[Fact],
    conditions: Conditions,
    *,
    lane: Lane | None = None,
) -> tuple[Decision, list[Subject]] | None:
    """Answers of bodies that were claimed together: what settling one after the other leads to, as
    one decision, with each one's move. It chooses once, at the end, what starts.

    Covers as many of the facts, from the first on, as end plainly; those after that are settled
    by themselves. None: not even the first. The fences are proved by the caller.
    """
    merged: Decision | None = None
    subjects: list[Subject] = []
    for fact in facts:
        one = _settle_plainly(workflow, merged.snapshot if merged else snapshot, fact, conditions)
        if one is None or one.subject is None:
            break
        one.record_asked()
        subjects.append(one.subject)
        if merged is None:
            merged = one
        else:
            merged.absorb(one)
        if merged.loops_done:
            break
    if merged is None:
        return None
    merged.subject = None
    turn = Turn(workflow, merged.snapshot, conditions, into=merged)
    if not merged.loops_done:  # else ``close_loop`` follows, and chooses what starts
        admission.admit(workflow, merged, lane, near=subjects[-1].ref.position)
    standing.stand(turn)
    return merged, subjects


def _settle_plainly(
    workflow: CompiledWorkflow, snapshot: Snapshot, fact: Fact, conditions: Conditions
) -> Decision | None:
    """One of many; None when it leads to more than successors."""
    if snapshot.verdict is not None or snapshot.undo is not None:
        return None
    turn = Turn(workflow, snapshot, conditions)
    settling.leave(turn, fact.ref, fact.waited_for)
    step = workflow.steps[fact.ref.position]
    move = settling.next_move(turn, step, fact)
    if fact.ref.item is None:
        settling.move_step(turn, step, fact.ref, move)
    else:
        settling.move_item(turn, step, fact.ref, move)
    if not turn.decision.leads_on or turn.snapshot.verdict is not None:
        return None
    if not turn.decision.loops_done:
        admission.release(workflow, turn.decision)
    return turn.decision


def close_loop(
    workflow: CompiledWorkflow,
    snapshot: Snapshot,
    position: int,
    conditions: Conditions,
    *,
    lane: Lane | None = None,
) -> Decision:
    """All items of a for_each have ended: the step itself completes or gives up."""
    turn = Turn(workflow, snapshot, conditions)
    step = workflow.steps[position]
    loop = turn.snapshot.loops.pop(position)
    if step.for_each is None:
        raise InvariantBroken(f"step {step.key} has item counters and no for_each")
    turn.decision.cancel_items.append(position)
    if step.undoes is None and not _completes(turn, step, loop):
        turn.note_items(position, loop)
    if turn.snapshot.verdict is not None and step.undoes is None:
        turn.assign(position, Code.CANCELLED)
        turn.emit("step.cancelled", Ref(position), reason="run_ending")
        turn.decision.subject = Subject(ref=Ref(position), to=StepState.CANCELLED)
    elif not _completes(turn, step, loop):
        failed = "failed" if step.undoes is None else "could not be undone"
        error = StepError(
            error_class=ErrorClass.MIN_SUCCESS,
            message=f"{loop.failed} of {loop.total} items {failed}",
        ).as_json()
        turn.give_up(position, error)
        to = turn.snapshot.state(position)  # failed, or skipped when the step is optional
        turn.decision.subject = Subject(ref=Ref(position), to=to, error=error)
    else:
        turn.complete(position, items=loop.total, failed=loop.failed)
        turn.decision.subject = Subject(ref=Ref(position), to=StepState.COMPLETED)
    return _concluded(turn, lane, near=position)


def _completes(turn: Turn, step: StepPlan, loop: Loop) -> bool:
    """A compensation of items undoes what it can, and has done so only if it could undo all."""
    if step.undoes is not None:
        return loop.failed == 0
    lost = step.for_each is not None and admission.is_lost(step.for_each.min_success, loop)
    return turn.snapshot.verdict is None and not lost


def wake(
    workflow: CompiledWorkflow, snapshot: Snapshot, ref: Ref, *, retries: bool
) -> Decision | None:
    """A retry (``retries``) or the next round of a repeat is due: the step is READY again.

    None when it no longer waits for that.
    """
    turn = Turn(workflow, snapshot, _NoConditions())
    if ref.item is None:
        if snapshot.code(ref.position) != (Code.RETRYING if retries else Code.WAIT_TIMER):
            return None
        turn.assign(ref.position, Code.READY)
    elif not _wake_item(turn.snapshot, ref, retries=retries):
        return None
    turn.decision.subject = Subject(ref=ref, to=StepState.READY)
    turn.emit("step.ready", ref)
    return _concluded(turn)


def park(
    workflow: CompiledWorkflow, snapshot: Snapshot, ref: Ref, gate: Gate, *, state: RunState
) -> Decision | None:
    """READY work stands before a gate that is shut or full: it waits for it, without a worker,
    a message or a place. None when it is not READY, or the run starts nothing now. ``state`` is
    the run's: one that is pending stays so, for nothing has begun."""
    if snapshot.paused or not _is_ready(snapshot, ref):
        return None
    if snapshot.verdict is not None and workflow.steps[ref.position].undoes is None:
        return None
    turn = Turn(workflow, snapshot, _NoConditions())
    if ref.item is None:
        turn.assign(ref.position, Code.WAIT_SERVICE)
    else:
        loop = turn.snapshot.loops[ref.position]
        (loop.ready if ref.item in loop.ready else loop.queued).remove(ref.item)
        loop.waits["service"] = loop.waits.get("service", 0) + 1
    turn.decision.subject = Subject(ref=ref, to=StepState.WAITING)
    turn.emit("step.waiting", ref, waiting_for="service", gate=gate.key, why=gate.why)
    decision = _concluded(turn)
    if state is RunState.PENDING and decision.run_state is RunState.RUNNING:
        decision.run_state = RunState.PENDING
    return decision


def let_go(workflow: CompiledWorkflow, snapshot: Snapshot, ref: Ref, key: str) -> Decision | None:
    """The gate ``key`` lets this step through: READY again. None when it waits for no gate."""
    turn = Turn(workflow, snapshot, _NoConditions())
    if ref.item is None:
        if snapshot.code(ref.position) != Code.WAIT_SERVICE:
            return None
        turn.assign(ref.position, Code.READY)
    else:
        loop = turn.snapshot.loops.get(ref.position)
        if loop is None or not settling.take_wait(loop, "service"):
            return None
        loop.ready.append(ref.item)
    turn.decision.subject = Subject(ref=ref, to=StepState.READY)
    turn.emit("step.ready", ref, gate=key)
    return _concluded(turn)


def _wake_item(snapshot: Snapshot, ref: Ref, *, retries: bool) -> bool:
    loop = snapshot.loops.get(ref.position)
    if loop is None or ref.item is None:
        return False
    if retries:
        if not loop.retrying:
            return False
        loop.retrying -= 1
    elif not settling.take_wait(loop, "timer"):
        return False
    loop.ready.append(ref.item)
    return True


def redispatch(workflow: CompiledWorkflow, snapshot: Snapshot, stale: list[Ref]) -> Decision:
    """Messages for these READY steps are taken for lost: send again what has a place."""
    turn = Turn(workflow, snapshot, _NoConditions())
    for ref in stale:
        admission.unqueue(turn.snapshot, ref)
    return _concluded(turn)


def pause(workflow: CompiledWorkflow, snapshot: Snapshot, *, reason: str) -> Decision:
    """Start nothing new. StateConflict when the run is paused already or is ending."""
    if snapshot.paused:
        raise StateConflict("the run is paused already", state=RunState.PAUSED)
    _refuse_ending(snapshot)
    turn = Turn(workflow, snapshot, _NoConditions())
    turn.snapshot.paused = True
    turn.emit("run.paused", None, reason=reason)
    return _concluded(turn)


def resume(workflow: CompiledWorkflow, snapshot: Snapshot, *, reason: str) -> Decision:
    """Go on: READY work is dispatched anew; a failed step whose policy paused the run is tried
    again. StateConflict when the run is not paused."""
    if not snapshot.paused:
        raise StateConflict("only a paused run can be resumed", state="not paused")
    undoing.refuse_hollow(workflow, snapshot)
    turn = Turn(workflow, snapshot, _NoConditions())
    turn.snapshot.paused = False
    turn.emit("run.resumed", None, reason=reason)
    for position in turn.snapshot.held:
        turn.assign(position, Code.READY)
        turn.decision.again.append(position)
        turn.emit("step.ready", Ref(position))
    turn.snapshot.held = []
    _forget_messages(turn.snapshot)
    return _concluded(turn)


def _forget_messages(snapshot: Snapshot) -> None:
    """What was on its way while the run was paused found it paused: take all for lost."""
    for position, raw in enumerate(snapshot.codes):
        if raw == Code.READY | QUEUED:
            snapshot.codes[position] = Code.READY
    for loop in snapshot.loops.values():
        loop.ready = sorted(loop.ready + loop.queued)
        loop.queued = []


def cancel(workflow: CompiledWorkflow, snapshot: Snapshot, *, reason: str) -> Decision:
    """End the run as cancelled: running bodies finish, nothing new starts (SPEC 4.11)."""
    _refuse_ending(snapshot)
    error = StepError(error_class=ErrorClass.CANCELLED, message=reason or "cancelled").as_json()
    turn = Turn(workflow, snapshot, _NoConditions())
    turn.emit("run.cancelling", None, reason=reason)
    turn.drain(Verdict(RunState.CANCELLED, error=error))
    return _concluded(turn)


def time_out(workflow: CompiledWorkflow, snapshot: Snapshot, *, message: str) -> Decision | None:
    """The run's own time is over: everything ends now, running bodies lose their fence, except
    those with an effect, which end by their own time limit. None when nothing is left to end."""
    if _is_over(snapshot):
        return None
    error = StepError(error_class=ErrorClass.TIMEOUT, message=message).as_json()
    turn = Turn(workflow, snapshot, _NoConditions())
    turn.emit("run.timing_out", None, message=message)
    if turn.snapshot.verdict is None:
        turn.drain(Verdict(RunState.TIMED_OUT, error=error), at_once=True)
    else:
        turn.end_stragglers()
        if not (turn.decision.cancelled or turn.decision.cancel_items):
            return None
    return _concluded(turn)


def fail_output(workflow: CompiledWorkflow, decision: Decision, error: dict[str, Any]) -> None:
    """The run would complete, but its output cannot be worked out: it has failed, and is undone.

    Changes the decision, which had ended the run.
    """
    turn = Turn(workflow, decision.snapshot, _NoConditions())
    turn.snapshot.verdict = Verdict(RunState.FAILED, error=error)
    turn.emit("run.failing", None, error=error)
    standing.stand(turn)
    more = turn.decision
    admission.admit(workflow, more, None)
    decision.snapshot, decision.run_state = more.snapshot, more.run_state
    decision.ready += more.ready
    decision.dispatch += more.dispatch
    decision.undoing += more.undoing
    decision.events += more.events


def _is_over(snapshot: Snapshot) -> bool:
    """Whether the run has ended, and steps of it are undone after its end."""
    return snapshot.undo is not None and snapshot.undo.back in RUN_TERMINAL


def _refuse_ending(snapshot: Snapshot) -> None:
    if snapshot.undo is not None and _is_over(snapshot):
        back = snapshot.undo.back
        raise StateConflict(f"the run is over ({back}), and steps of it are undone", state=back)
    if snapshot.verdict is not None:
        raise StateConflict(
            f"the run is ending as {snapshot.verdict.state}", state=snapshot.verdict.state
        )


class _NoConditions:
    """For facts that decide no edge; asking it is a defect of planning."""

    def see(self, snapshot: Snapshot) -> None:
        """Nothing to look at."""

    def edge(self, edge: Edge) -> bool:
        raise InvariantBroken(f"edge {edge.index} was asked for a condition")

    def step(self, position: int) -> bool:
        raise InvariantBroken(f"step {position} was asked for a condition")

    def until(self, ref: Ref, output: Any) -> bool:
        raise InvariantBroken(f"step {ref.position} was asked for a round: {output!r}")

    def cover(self, owner: int, fallback: int) -> None:
        raise InvariantBroken(f"step {owner} was covered by {fallback}")
