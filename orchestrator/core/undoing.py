"""Undoing what a run did, beside its own course: one step by repair, or all of it since its parent
failed. The run stands paused or is over, and comes back to that (ADR 0024).

Pure, as planning is. Each refusal is a StateConflict that says what to do instead.
"""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.core import admission, saga, standing
from orchestrator.core.compiled import CompiledWorkflow, StepPlan
from orchestrator.core.decision import Decision
from orchestrator.core.errors import StateConflict
from orchestrator.core.propagation import Conditions, Turn
from orchestrator.core.snapshot import ENDED, QUEUED, Code, Snapshot, Undo
from orchestrator.core.states import RunState

_UNDECIDED = frozenset(map(int, (Code.RUNNING, Code.RETRYING, Code.LOOPING, Code.WAIT_CHILD)))


def compensate_step(
    workflow: CompiledWorkflow,
    snapshot: Snapshot,
    conditions: Conditions,
    position: int,
    *,
    state: RunState,
    with_dependents: bool = False,
) -> Decision:
    """Undo one finished step of a run that stands paused or is over (``state``).

    Steps behind it that can be undone, and are not, have to be undone first: they are with
    ``with_dependents``, in reverse, else the step is refused. Raises StateConflict
    (``not_completed``, ``compensated``, ``no_compensation``, ``undo_first``, ``still_under_way``,
    ``effect_in_doubt``).
    """
    step = workflow.steps[position]
    _check_step(workflow, snapshot, step)
    _check_behind(workflow, snapshot, step)
    above = dependents(workflow, snapshot, position)
    if above and not with_dependents:
        names = ", ".join(workflow.steps[p].key for p in above)
        message = f"step {step.key} is followed by {names}, done and not undone: undo that first,"
        raise StateConflict(
            f"{message} or all of it in this order by with_dependents",
            state=snapshot.state(position),
            code="undo_first",
        )
    return _undo(workflow, snapshot, conditions, [position, *above], state, whole=False)


def dependents(workflow: CompiledWorkflow, snapshot: Snapshot, position: int) -> list[int]:
    """The finished steps behind this one that can be undone and have not been."""
    after = saga.behind(workflow, position)
    standing_ones = (undo.undoes for undo in saga.standing(workflow, snapshot))
    return sorted(p for p in standing_ones if p in after)


def staying(workflow: CompiledWorkflow, snapshot: Snapshot, positions: Iterable[int]) -> list[int]:
    """The finished steps with an effect behind these that nothing can undo: they stay done."""
    after = {p for position in positions for p in saga.behind(workflow, position)}
    can = {undo.undoes for undo in workflow.compensations}
    return [
        step.position
        for step in workflow.forward
        if step.position in after
        and step.position not in can
        and (step.effect_key is not None or step.irreversible)
        and snapshot.code(step.position) == Code.COMPLETED
    ]


def undo_all(
    workflow: CompiledWorkflow, snapshot: Snapshot, conditions: Conditions, *, state: RunState
) -> Decision:
    """The parent of a run that is over has failed: all that the run did is undone.

    What could not be undone before is tried once more. With nothing to undo the run is back at
    once (``Decision.came_back``).
    """
    positions = [s.undoes for s in saga.standing(workflow, snapshot) if s.undoes is not None]
    return _undo(workflow, snapshot, conditions, positions, state, whole=True)


def refuse_hollow(workflow: CompiledWorkflow, snapshot: Snapshot) -> None:
    """A paused run does not go on over what has been undone. Raises StateConflict."""
    for undo in workflow.compensations:
        undone = undo.undoes
        if undone is None or not saga.is_undone(snapshot, undo):
            continue
        after = saga.behind(workflow, undone)
        left = [p for p in sorted(after) if snapshot.code(p) not in ENDED or p in snapshot.held]
        if left:
            key, other = workflow.steps[undone].key, workflow.steps[left[0]].key
            raise StateConflict(
                f"step {key} was undone, and {other} would go on from what is no longer there:"
                " cancel the run, and start a new one",
                state=RunState.PAUSED,
                code="compensated",
            )


def _undo(
    workflow: CompiledWorkflow,
    snapshot: Snapshot,
    conditions: Conditions,
    positions: list[int],
    state: RunState,
    *,
    whole: bool,
) -> Decision:
    turn = Turn(workflow, snapshot, conditions)
    undo = turn.snapshot.undo
    if undo is None:
        undo = turn.snapshot.undo = Undo(str(state), [])
        _forget_messages(turn.snapshot)
    undo.steps = sorted({*undo.steps, *positions})
    undo.whole = undo.whole or whole
    keys = [workflow.steps[p].key for p in undo.steps]
    turn.emit("compensation.requested", None, steps=keys[:50], whole=whole)
    for step in workflow.compensations:
        failed = turn.snapshot.code(step.position) in (Code.FAILED, Code.TIMED_OUT)
        if step.undoes in positions and failed:
            turn.assign(step.position, Code.BLOCKED)
            turn.snapshot.reopened.append(step.position)
            turn.decision.reopened.append(step.position)
    standing.stand(turn)
    admission.admit(workflow, turn.decision, None)
    return turn.decision


def _forget_messages(snapshot: Snapshot) -> None:
    """What was on its way found the run paused: it holds no place."""
    for position, raw in enumerate(snapshot.codes):
        if raw == Code.READY | QUEUED:
            snapshot.codes[position] = Code.READY
    for loop in snapshot.loops.values():
        loop.ready = sorted(loop.ready + loop.queued)
        loop.queued = []


# -- what forbids it -------------------------------------------------------------------------------


def _check_step(workflow: CompiledWorkflow, snapshot: Snapshot, step: StepPlan) -> None:
    undo = saga.undo_of(workflow, step.position)
    state = Code.BLOCKED if undo is None else snapshot.code(undo.position)
    if state == Code.COMPLETED:
        _refuse(snapshot, step, "it has been undone already", "compensated")
    if state != Code.BLOCKED and state not in ENDED:
        _refuse(snapshot, step, "it is being undone", "still_under_way")
    if not saga.did(snapshot, step.position):
        why = "only what a completed step did can be undone"
        _refuse(snapshot, step, why, "not_completed")
    if undo is not None:
        return
    final = "it is irreversible: " if step.irreversible else "its document says not how: "
    _refuse(snapshot, step, f"{final}undo it by hand", "no_compensation")


def _check_behind(workflow: CompiledWorkflow, snapshot: Snapshot, step: StepPlan) -> None:
    """What is at work on the step's effect, or may have been, has to come to its end first."""
    for position in sorted(saga.behind(workflow, step.position)):
        code = snapshot.code(position)
        other = workflow.steps[position].key
        if code == Code.WAIT_REVIEW:
            why = f"the effect of {other} behind it is in doubt: settle that effect first"
            _refuse(snapshot, step, why, "effect_in_doubt")
        if code in _UNDECIDED:
            why = f"{other} behind it is {snapshot.state(position)}: let it end first"
            _refuse(snapshot, step, why, "still_under_way")


def _refuse(snapshot: Snapshot, step: StepPlan, why: str, code: str) -> None:
    state = snapshot.state(step.position)
    raise StateConflict(f"step {step.key} is {state}: {why}", state=state, code=code)
