"""Repair: what an operator may make of a run that failed, was cancelled, or stands paused.

Pure, as planning is: the same stored state and the same wish give the same decision. Nothing that
completed runs again unless the wish names it or something before it; what the run's end cut off
goes on; each refusal is a StateConflict that says what to do instead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from orchestrator.core import saga
from orchestrator.core.compiled import CompiledWorkflow, StepPlan
from orchestrator.core.decision import Decision, Ref, Subject
from orchestrator.core.errors import StateConflict
from orchestrator.core.propagation import Conditions
from orchestrator.core.reopening import Reopening, Stored, behind, is_handled
from orchestrator.core.settling import take_wait
from orchestrator.core.snapshot import ENDED, WAIT_WORDS, Code, Snapshot
from orchestrator.core.states import StepState

_FAILED = frozenset({Code.FAILED, Code.TIMED_OUT})
_SKIPPABLE = frozenset({Code.RETRYING, *map(Code, WAIT_WORDS)}) - {Code.WAIT_REVIEW}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a repair starts from: the stored state, and the values behind conditions."""

    workflow: CompiledWorkflow
    snapshot: Snapshot
    stored: Stored
    conditions: Conditions

    def state(self, position: int) -> StepState:
        """The step's state in the words of the API."""
        return self.snapshot.state(position)


def retry_step(wish: Wish, position: int) -> Decision:
    """Run a step again that failed and brought the run to a halt, with fresh retries.

    What was cancelled or failed because the run was ending goes on with it. A for_each does its
    unfinished items again. Raises StateConflict (``not_failed``, ``failure_handled``,
    ``compensated``).
    """
    step = wish.workflow.steps[position]
    _refuse_undone(wish)
    if wish.snapshot.code(position) not in _FAILED:
        _refuse(wish, step, "only a step that failed or timed out can be retried", "not_failed")
    root = _root(wish.workflow, step)
    if is_handled(wish.workflow, wish.snapshot, root):
        _refuse(
            wish,
            step,
            f"the failure of {root.key} was dealt with as the document says, and the run went on;"
            " to run the step and everything behind it again, use resume with this step",
            "failure_handled",
        )
    turn = Reopening(wish.workflow, wish.snapshot, wish.stored, wish.conditions)
    head = _entry(wish, position)
    turn.reopen([head], {head, *turn.chain(head)}, keep_items=True)
    return turn.concluded()


def resume_from(wish: Wish, positions: Collection[int]) -> Decision:
    """Run these steps and everything behind them again.

    Raises StateConflict (``compensated``, ``step_running``, ``still_under_way``,
    ``irreversible``, ``not_started``).
    """
    workflow = wish.workflow
    _refuse_undone(wish)
    heads = {_entry(wish, position) for position in positions}
    again = behind(workflow, heads)
    if wish.snapshot.running:
        message = "steps are running: pause the run and let them end first"
        raise StateConflict(message, state="running", code="step_running")
    for position in sorted(again):
        _check_again(wish, workflow.steps[position])
    if all(wish.snapshot.code(position) == Code.BLOCKED for position in again):
        step = workflow.steps[min(heads)]
        _refuse(wish, step, "nothing at or behind this point has begun", "not_started")
    first = [p for p in sorted(heads) if p not in behind(workflow, heads - {p})]
    turn = Reopening(workflow, wish.snapshot, wish.stored, wish.conditions)
    turn.reopen(first, again, keep_items=False)
    return turn.concluded()


def skip_step(wish: Wish, position: int) -> Decision:
    """End an optional step that waits, will be retried, or failed; the run goes on without it.

    Raises StateConflict (``not_optional``, ``effect_in_doubt``, ``not_skippable``,
    ``failure_handled``, ``compensated``).
    """
    step = wish.workflow.steps[position]
    code = Code(wish.snapshot.code(position))
    if not step.optional:
        _refuse(wish, step, "only a step marked optional: true can be skipped", "not_optional")
    if code is Code.WAIT_REVIEW:
        _refuse(wish, step, "its effect is in doubt: settle the effect first", "effect_in_doubt")
    if step.owner is not None:
        _refuse(wish, step, "it stands in for a step that failed", "not_skippable")
    if code in _FAILED:
        return _skip_failed(wish, step)
    if code not in _SKIPPABLE or wish.snapshot.verdict is not None:
        _refuse(wish, step, "only a step that waits, or failed, can be skipped", "not_skippable")
    turn = Reopening(wish.workflow, wish.snapshot, wish.stored, wish.conditions)
    turn.skip(position, "repair")
    turn.decision.subject = Subject(ref=Ref(position), to=StepState.SKIPPED)
    return turn.concluded()


def _skip_failed(wish: Wish, step: StepPlan) -> Decision:
    _refuse_undone(wish)
    if is_handled(wish.workflow, wish.snapshot, step):
        _refuse(wish, step, "the run has gone on past it already", "failure_handled")
    turn = Reopening(wish.workflow, wish.snapshot, wish.stored, wish.conditions)
    turn.reopen([], set(), keep_items=True, spared=step.position)
    turn.decision.excused.append(step.position)
    turn.skip(step.position, "repair")
    return turn.concluded()


def send_back(wish: Wish, ref: Ref) -> Decision:
    """A person says that the effect in doubt did not happen: the step is READY again.

    In a run that is ending it is cancelled instead. Raises StateConflict (``not_in_review``).
    """
    turn = Reopening(wish.workflow, wish.snapshot, wish.stored, wish.conditions)
    step = wish.workflow.steps[ref.position]
    if not _leave_review(turn.snapshot, ref):
        _refuse(wish, step, "it does not wait for a review", "not_in_review")
    ending = wish.snapshot.verdict is not None and step.undoes is None
    to = StepState.CANCELLED if ending else StepState.READY
    turn.decision.subject = Subject(ref=ref, to=to)
    if ref.item is None:
        turn.assign(ref.position, Code.CANCELLED if ending else Code.READY)
    elif not ending:
        turn.snapshot.loops[ref.position].ready.append(ref.item)
    else:
        turn.drop_item(ref)
    if ending:
        turn.emit("step.cancelled", ref, reason="run_ending")
    else:
        turn.emit("step.ready", ref)
    return turn.concluded()


def _leave_review(snapshot: Snapshot, ref: Ref) -> bool:
    """Whether it waited for one; an item's wait is taken out of its loop's counters."""
    if ref.item is None:
        return snapshot.code(ref.position) == Code.WAIT_REVIEW
    loop = snapshot.loops.get(ref.position)
    return loop is not None and take_wait(loop, "review")


# -- what forbids it -------------------------------------------------------------------------------


def _refuse(wish: Wish, step: StepPlan, why: str, code: str) -> None:
    state = wish.state(step.position)
    raise StateConflict(f"step {step.key} is {state}: {why}", state=state, code=code)


def _refuse_undone(wish: Wish) -> None:
    if saga.has_begun(wish.workflow, wish.snapshot):
        raise StateConflict(
            "what the run had done has been undone, and a step would go on from what is no longer"
            " there: start a new run",
            state="compensated",
            code="compensated",
        )


def _check_again(wish: Wish, step: StepPlan) -> None:
    code = wish.snapshot.code(step.position)
    if code not in ENDED and code != Code.BLOCKED:
        why = "it would run again while it is under way: let it end, or cancel the run, first"
        _refuse(wish, step, why, "still_under_way")
    if code == Code.COMPLETED and step.irreversible and step.effect_key is None:
        why = "it cannot be undone, and no effect key would keep it from happening twice"
        _refuse(wish, step, why, "irreversible")


def _root(workflow: CompiledWorkflow, step: StepPlan) -> StepPlan:
    """The step that a fallback stands in for, or the step itself."""
    while step.owner is not None:
        step = workflow.steps[step.owner]
    return step


def _entry(wish: Wish, position: int) -> int:
    """Where to begin: a fallback that did not run, or that is not needed now, has nothing of its
    own to begin with."""
    step, snapshot = wish.workflow.steps[position], wish.snapshot
    began = snapshot.code(position) in _FAILED | {Code.COMPLETED}
    while began and step.owner is not None:
        began = position not in snapshot.barred and snapshot.code(step.owner) in _FAILED
        step = wish.workflow.steps[step.owner]
    return position if began else _root(wish.workflow, step).position


def routers(workflow: CompiledWorkflow, snapshot: Snapshot) -> list[int]:
    """The routers whose choice ``Stored.routes`` has to name."""
    return [
        step.position
        for step in workflow.forward
        if step.for_each is None
        and snapshot.code(step.position) == Code.COMPLETED
        and any(edge.routes is not None for edge in step.outs)
    ]


def stored_state(
    rows: Iterable[tuple[int, int | None, str]], routes: Mapping[int, tuple[str, ...]]
) -> Stored:
    """From ``(position, index, state)`` of the step rows, and the routes that were chosen."""
    states = {Ref(position, index): StepState(state) for position, index, state in rows}
    return Stored(rows=states, routes=routes)
