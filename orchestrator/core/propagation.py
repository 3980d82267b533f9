"""What the end of a step means for its neighbours: edges, joins, skips, failures, run's verdict.

One ``Turn`` is one fact being worked through. It changes its own copy of the snapshot and notes
in the decision what the rows need; work lists instead of recursion, so that a skip may run
through two thousand steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from orchestrator.core import saga
from orchestrator.core.compiled import CompiledWorkflow, Edge, Join, On, StepPlan
from orchestrator.core.decision import Decision, EventDraft, Ref
from orchestrator.core.errors import ConditionError, ErrorClass, StepError
from orchestrator.core.snapshot import (
    ENDED,
    Code,
    Loop,
    Mark,
    Snapshot,
    Verdict,
)
from orchestrator.core.states import RunState
from orchestrator.core.undo_steps import UNDO_CHILD


class Conditions(Protocol):
    """The values behind the document's conditions, read from stored state (never guessed).

    Each raises ConditionError when the expression fails or is not boolean. ``absent`` positions
    count as without output.
    """

    def see(self, snapshot: Snapshot) -> None:
        """States and marks are those of ``snapshot``, which the turn goes on changing."""
        ...

    def edge(self, edge: Edge) -> bool:
        """The edge's ``when``."""
        ...

    def step(self, position: int) -> bool:
        """The step's own ``when``."""
        ...

    def until(self, ref: Ref, output: Any) -> bool:
        """The step's ``repeat.until`` over this round's output."""
        ...

    def cover(self, owner: int, fallback: int) -> None:
        """From now on the fallback's output stands for the owner's."""
        ...


_TRIED = frozenset(map(int, (Code.FAILED, Code.TIMED_OUT)))


class Turn:
    """One fact being worked through."""

    def __init__(
        self,
        workflow: CompiledWorkflow,
        snapshot: Snapshot,
        conditions: Conditions,
        *,
        into: Decision | None = None,
    ) -> None:
        """``into``: go on with this decision, and with its own snapshot."""
        self.workflow = workflow
        self.snapshot = snapshot.copy() if into is None else into.snapshot
        self.snapshot.reach(len(workflow.steps))
        self.conditions = conditions
        self.decision = Decision(snapshot=self.snapshot) if into is None else into
        self._touched: list[int] = []
        conditions.see(self.snapshot)

    # -- small words ---------------------------------------------------------------------------

    def emit(self, event_type: str, ref: Ref | None = None, **payload: Any) -> None:
        """Note one line of the history."""
        self.decision.events.append(EventDraft(event_type, ref, payload))

    def ask(self, name: str, condition: Callable[[], bool]) -> bool:
        """Ask a condition and note what it said, None when it failed: a replay has no values.

        ``name``: ``e3`` an edge by index, ``s3`` a step's own by position, ``until`` of a repeat.
        """
        self.decision.asked[name] = None
        self.decision.asked[name] = answer = condition()
        return answer

    def assign(self, position: int, code: Code) -> None:
        """Give the step another code (and take away its queued bit)."""
        self.snapshot.codes[position] = code

    def enter(self) -> None:
        """Consider the steps without needs."""
        self._touched = [s.position for s in reversed(self.workflow.forward) if not s.ins]
        self._spread()

    # -- ends of steps -------------------------------------------------------------------------

    def complete(
        self, position: int, *, routes: tuple[str, ...] | None = None, **payload: Any
    ) -> None:
        """The step is done: its edges are decided, what waited for it is considered."""
        step = self.workflow.steps[position]
        self.assign(position, Code.COMPLETED)
        if position in self.snapshot.acted and step.type != "sub_workflow":
            self.snapshot.acted.remove(position)  # a repair had set it back
        self.emit("step.completed", Ref(position), **payload)
        if step.undoes is not None:
            if self.snapshot.code(step.undoes) == Code.COMPENSATING:
                self.assign(step.undoes, Code.COMPENSATED)
                self.decision.undone.append(step.undoes)
            self.emit("compensation.completed", Ref(step.undoes))
            return
        self._drop_fallback(step)
        self._leave(step, On.COMPLETED, routes)
        owner = step.owner
        while owner is not None:  # a fallback's fallback stands for both
            self.decision.covers.append((owner, position))
            self.conditions.cover(owner, position)
            covered = self.workflow.steps[owner]
            self._leave(covered, On.COMPLETED, None)
            owner = covered.owner
        self._spread()

    def give_up(self, position: int, error: dict[str, Any], *, timed_out: bool = False) -> None:
        """The step failed for good: its fallback, its edges, or the run's policy takes over."""
        step = self.workflow.steps[position]
        self.assign(position, Code.TIMED_OUT if timed_out else Code.FAILED)
        self.emit("step.timed_out" if timed_out else "step.failed", Ref(position), error=error)
        if step.undoes is not None:
            if self.snapshot.code(step.undoes) == Code.COMPENSATING:
                self.assign(step.undoes, Code.COMPLETED)  # it stays done
                self.decision.kept.append(step.undoes)
            self.emit("compensation.failed", Ref(step.undoes), error=error)
            return
        self._hand_over(step, error)
        self._spread()

    def skip(self, position: int, reason: str) -> None:
        """The step will not run; skipping spreads to what nothing else reaches."""
        self._skip(self.workflow.steps[position], reason)
        self._spread()

    def _skip(self, step: StepPlan, reason: str) -> None:
        self.note_child(step.position)
        self.assign(step.position, Code.SKIPPED)
        self.emit("step.skipped", Ref(step.position), reason=reason)
        if self._had_row(step.position):
            self.decision.excused.append(step.position)
        self._drop_fallback(step)
        self._leave(step, On.SKIPPED, None)

    def _drop_fallback(self, step: StepPlan) -> None:
        if step.fallback is None:
            return
        fallback = self.workflow.steps[step.fallback]
        code = self.snapshot.code(fallback.position)
        if code == Code.BLOCKED:
            self._skip(fallback, "fallback_not_needed")
        elif code in _TRIED:  # before its owner was resumed: its failure is final now
            self._leave(fallback, On.FAILED, None)
            self._drop_fallback(fallback)

    def _hand_over(self, step: StepPlan, error: dict[str, Any]) -> None:
        """The fallback takes over; when there is none, or it will not run, nobody does."""
        if self.snapshot.verdict is not None:
            return  # the run is ending: nothing more is started, and no policy asked
        if step.fallback is None or not self._admit(self.workflow.steps[step.fallback]):
            self._unmet(step, error)

    def _unmet(self, step: StepPlan, error: dict[str, Any]) -> None:
        """No fallback covers the failure: an edge, or the policy, decides."""
        tried = []
        while step.owner is not None:
            tried.append(step)
            step = self.workflow.steps[step.owner]
        if self._may_be_held(step):
            self._hold(step, error)  # all of them may be tried again: no edge is decided yet
            return
        for fallback in tried:
            self._leave(fallback, On.FAILED, None)
        if step.optional:
            self._excuse(step, error)
        elif step.handles_failure:
            self._leave(step, On.FAILED, None)
        elif step.on_error == "continue":
            self._warn(step, error)
            self._leave(step, On.COMPLETED, None)
        else:
            self.drain(Verdict(RunState.FAILED, error=error, step=step.key))

    def _may_be_held(self, step: StepPlan) -> bool:
        """A condition that failed would fail again: what it kept from starting is not held."""
        if step.optional or step.handles_failure or step.on_error != "pause":
            return False
        return step.position not in self.snapshot.barred

    def _excuse(self, step: StepPlan, error: dict[str, Any]) -> None:
        """The final failure of an optional step counts as skipped."""
        self._warn(step, error)
        self.assign(step.position, Code.SKIPPED)
        self.decision.excused.append(step.position)
        self.emit("step.skipped", Ref(step.position), reason="optional_failed", error=error)
        self._leave(step, On.SKIPPED, None)

    def _warn(self, step: StepPlan, error: dict[str, Any]) -> None:
        self.snapshot.warnings.append({"step": step.key, "error": error})

    def _hold(self, step: StepPlan, error: dict[str, Any]) -> None:
        self.snapshot.held.append(step.position)
        if not self.snapshot.paused:
            self.snapshot.paused = True
            self.emit("run.paused", None, reason=f"step {step.key} failed", error=error)

    # -- edges and joins -----------------------------------------------------------------------

    def _leave(self, step: StepPlan, end: On, routes: tuple[str, ...] | None) -> None:
        """Decide every edge that leaves ``step``, which ended as ``end``."""
        marks = self.snapshot.marks
        for edge in step.outs:
            if marks[edge.index] != Mark.OPEN:
                continue
            taken = self._is_taken(edge, end, routes)
            marks[edge.index] = Mark.TAKEN if taken else Mark.DEAD
            self._touched.append(edge.target)

    def _is_taken(self, edge: Edge, end: On, routes: tuple[str, ...] | None) -> bool:
        if edge.on is not On.ANY and edge.on is not end:
            return False
        if edge.routes is not None and (routes is None or edge.routes.isdisjoint(routes)):
            return False
        if edge.when is None or self.snapshot.verdict is not None:
            return True
        if self.snapshot.code(edge.target) != Code.BLOCKED:
            return False  # the join has fired or gone: nobody asks any more
        try:
            return self.ask(f"e{edge.index}", lambda: self.conditions.edge(edge))
        except ConditionError as error:
            self._fail_unstarted(edge.target, error)
            return False

    def _fail_unstarted(self, position: int, error: ConditionError) -> None:
        """A condition of this step failed: the step that owns it fails (FORMAT section 4)."""
        if self.snapshot.code(position) != Code.BLOCKED:
            return
        shape = StepError(error_class=ErrorClass.CONDITION_ERROR, message=str(error)).as_json()
        self.assign(position, Code.FAILED)
        self._had_row(position)
        self.snapshot.barred.append(position)
        self.decision.failed.append((position, shape))
        self.emit("step.failed", Ref(position), error=shape)
        self._hand_over(self.workflow.steps[position], shape)

    def _spread(self) -> None:
        """Consider every step an edge of which was just decided, until nothing moves."""
        while self._touched:
            position = self._touched.pop()
            step = self.workflow.steps[position]
            if self.snapshot.verdict is None and self.snapshot.code(position) == Code.BLOCKED:
                self._consider(step)

    def _consider(self, step: StepPlan) -> None:
        if step.owner is not None:
            return  # a fallback starts only when its owner has given up
        marks = self.snapshot.marks
        n_taken = n_open = 0
        for edge in step.ins:
            mark = marks[edge.index]
            n_taken += mark == Mark.TAKEN
            n_open += mark == Mark.OPEN
        verdict = join_verdict(step, n_taken=n_taken, n_open=n_open)
        if verdict is True:
            self._admit(step)
        elif verdict is False:
            # An edge that is still open might be taken yet: then it is the join that is lost.
            reason = "join_unmet" if n_taken or n_open else "no_branch_taken"
            self._skip(step, reason)

    def _admit(self, step: StepPlan) -> bool:
        """The step's needs are met: READY, unless its own condition says otherwise.

        False: it will not run, and nobody has dealt with what that means for its owner.
        """
        code = self.snapshot.code(step.position)
        if code in _TRIED:  # the fallback of a step that was resumed: tried once more
            return self._admit_again(step)
        if code != Code.BLOCKED:
            return False
        if step.when is not None:
            try:
                wanted = self.ask(f"s{step.position}", lambda: self.conditions.step(step.position))
            except ConditionError as error:
                self._fail_unstarted(step.position, error)
                return True
            if not wanted:
                self._skip(step, "condition_false")
                return False
        self.assign(step.position, Code.READY)
        if self._had_row(step.position):
            self.decision.again.append(step.position)
        else:
            self.decision.ready.append(Ref(step.position))
        self.emit("step.ready", Ref(step.position))
        if step.late_cancel:
            self._cancel_late_branches(step)
        return True

    def _had_row(self, position: int) -> bool:
        """Whether a repair made the step BLOCKED, so that it has a row; BLOCKED no more."""
        if position not in self.snapshot.reopened:
            return False
        self.snapshot.reopened.remove(position)
        return True

    def _admit_again(self, step: StepPlan) -> bool:
        if step.position in self.snapshot.barred:
            return False
        self.assign(step.position, Code.READY)
        self.decision.again.append(step.position)
        self.emit("step.ready", Ref(step.position))
        return True

    def _cancel_late_branches(self, join: StepPlan) -> None:
        """Cancel what still works only for a join that has fired (``late: cancel``)."""
        doomed: list[int] = []
        seen = {join.position}
        frontier = [e.source for e in join.ins if self.snapshot.marks[e.index] == Mark.OPEN]
        while frontier:
            position = frontier.pop()
            step = self.workflow.steps[position]
            if position in seen or self.snapshot.code(position) in ENDED:
                continue
            if step.owner is not None or any(edge.target not in seen for edge in step.outs):
                continue  # it works for others too; a fallback does for its owner's edges
            seen.add(position)
            doomed.append(position)
            frontier.extend(edge.source for edge in step.ins)
        for position in doomed:
            self.cancel(position, reason="late")
            for edge in self.workflow.steps[position].outs:
                self.snapshot.marks[edge.index] = Mark.DEAD
            self._drop_fallback(self.workflow.steps[position])

    # -- what a step did that does not complete --------------------------------------------------

    def note_child(self, position: int) -> None:
        """The step, or an item of it, may wait for a child and does so no more: that ends by
        itself, and undoes what it did; the saga waits for it."""
        loop = self.snapshot.loops.get(position)
        waits = self.snapshot.code(position) == Code.WAIT_CHILD
        if waits or (loop is not None and loop.waits.get("child")):
            self.note_acted(position, UNDO_CHILD)

    def note_items(self, position: int, loop: Loop) -> None:
        """The for_each will not complete: what its completed items did is undone."""
        if loop.ok:
            self.note_acted(position)

    def note_set_back(self, position: int) -> None:
        """A repair takes its completion back: should it never complete again, what it did still
        stands. Items of a for_each are of the past, and known no more."""
        undo = saga.undo_of(self.workflow, position)
        loops = self.workflow.steps[position].for_each is not None
        if not loops or (undo is not None and undo.type == UNDO_CHILD):
            self.note_acted(position)

    def note_acted(self, position: int, kind: str = "") -> None:
        """The step did something and will not complete; remembered where that can be undone (by a
        compensation of ``kind``), or never can."""
        undo = saga.undo_of(self.workflow, position)
        wanted = undo is not None and (not kind or undo.type == kind)
        if not wanted and (kind or not self.workflow.steps[position].irreversible):
            return
        if position not in self.snapshot.acted:
            self.snapshot.acted.append(position)

    # -- the end of a run ----------------------------------------------------------------------

    def drain(self, verdict: Verdict, *, at_once: bool = False) -> None:
        """Start nothing more; running bodies finish (or are fenced off, with ``at_once``).

        The first verdict stands.
        """
        if self.snapshot.verdict is not None:
            return
        self.snapshot.verdict = verdict
        self.snapshot.paused = False
        self.snapshot.undo = None  # all of it will be undone
        self.decision.ready.clear()
        for step in self.workflow.forward:
            code = self.snapshot.code(step.position)
            if code in ENDED or code in (Code.WAIT_REVIEW, Code.COMPENSATING):
                continue  # an effect in doubt is settled first: what is unknown cannot be undone
            if code == Code.RUNNING and not (at_once and step.effect_key is None):
                continue
            cut = at_once and step.effect_key is None
            self.cancel(step.position, reason="run_ending", at_once=cut)

    def end_stragglers(self) -> None:
        """The run was ending and its time is over: bodies without an effect lose their fence."""
        for step in self.workflow.forward:
            code = self.snapshot.code(step.position)
            if code in ENDED or code in (Code.WAIT_REVIEW, Code.COMPENSATING):
                continue
            if step.effect_key is None:
                self.cancel(step.position, reason="run_timed_out")

    def cancel(self, position: int, *, reason: str, at_once: bool = True) -> None:
        """End one step that has not ended. A running body loses its fence; its result is late."""
        code = self.snapshot.code(position)
        self.note_child(position)
        if code == Code.LOOPING:
            self._cancel_loop(position, at_once=at_once)
            if self.snapshot.code(position) == Code.LOOPING:
                return
        if code == Code.RUNNING:
            self.snapshot.running -= 1
        self.assign(position, Code.CANCELLED)
        was_ready_now = Ref(position) in self.decision.ready
        if was_ready_now:
            self.decision.ready.remove(Ref(position))
        if code != Code.BLOCKED or self._had_row(position):
            self.decision.cancelled.append(position)
            self.emit("step.cancelled", Ref(position), reason=reason)

    def _cancel_loop(self, position: int, *, at_once: bool) -> None:
        loop = self.snapshot.loops[position]
        self.note_items(position, loop)
        self.decision.cancel_items.append(position)
        loop.ready, loop.queued, loop.again, loop.retrying = [], [], [], 0
        doubts = loop.waits.get("review", 0) if self.snapshot.verdict is not None else 0
        loop.waits = {"review": doubts} if doubts else {}  # settled first, as a plain step's is
        if at_once:
            self.snapshot.running -= loop.running
            loop.running = 0
        loop.released = loop.total = loop.running + loop.ok + loop.failed + doubts
        if loop.running + doubts == 0:
            self.assign(position, Code.CANCELLED)
            del self.snapshot.loops[position]


def join_verdict(step: StepPlan, *, n_taken: int, n_open: int) -> bool | None:
    """True: run it; False: skip it; None: not known yet (FORMAT section 1, ``join``)."""
    n_edges = len(step.ins)
    if step.join is Join.AT_LEAST:
        if n_taken >= step.join_count:
            return True
        return None if n_taken + n_open >= step.join_count else False
    if step.join is Join.STRICT and n_taken + n_open < n_edges:
        return False
    if n_open:
        return None
    return n_taken > 0 or n_edges == 0
