"""Taking back the end of steps, and of their run: codes, edges, loops, and who goes on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from orchestrator.core import admission, standing
from orchestrator.core.compiled import CompiledWorkflow, On, StepPlan
from orchestrator.core.decision import Decision, Ref
from orchestrator.core.propagation import Conditions, Turn
from orchestrator.core.snapshot import ENDED, QUEUED, Code, Loop, Mark, Snapshot
from orchestrator.core.states import StepState

_FAILED = frozenset(map(int, (Code.FAILED, Code.TIMED_OUT)))
_BEGAN = _FAILED | {int(Code.COMPLETED)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What the compact state does not hold: the rows' states, and what completed routers chose."""

    rows: Mapping[Ref, StepState]
    routes: Mapping[int, tuple[str, ...]]


def behind(workflow: CompiledWorkflow, positions: Iterable[int]) -> set[int]:
    """These steps and all that comes after them: along edges, into fallbacks, out of owners."""
    found: set[int] = set()
    frontier = list(positions)
    while frontier:
        position = frontier.pop()
        if position in found:
            continue
        found.add(position)
        step = workflow.steps[position]
        frontier += [edge.target for edge in step.outs]
        if step.fallback is not None:
            frontier.append(step.fallback)
        while step.owner is not None:  # its output stands for its owner's
            step = workflow.steps[step.owner]
            frontier += [edge.target for edge in step.outs]
    return found


def is_handled(workflow: CompiledWorkflow, snapshot: Snapshot, step: StepPlan) -> bool:
    """Whether the failure of ``step`` (which is no fallback) did not end or halt the run: a
    fallback covers it or is at it, an edge took it, or the document says to continue."""
    if step.position in snapshot.held:
        return False
    if snapshot.code(step.position) not in _FAILED:
        return True  # an optional one counts as skipped
    fallback = step.fallback
    while fallback is not None:
        code = snapshot.code(fallback)
        if code == Code.COMPLETED or (code not in ENDED and code != Code.BLOCKED):
            return True
        fallback = workflow.steps[fallback].fallback
    if step.optional or not (step.handles_failure or step.on_error == "continue"):
        return False
    if step.outs:  # while a run ends nobody decides them
        return all(snapshot.marks[edge.index] != Mark.OPEN for edge in step.outs)
    return any(warning["step"] == step.key for warning in snapshot.warnings)


class Reopening(Turn):
    """One repair being worked through."""

    def __init__(
        self,
        workflow: CompiledWorkflow,
        snapshot: Snapshot,
        stored: Stored,
        conditions: Conditions,
    ) -> None:
        super().__init__(workflow, snapshot, conditions)
        self.stored = stored

    def chain(self, position: int) -> list[int]:
        """The fallback of the step, its fallback, and so on."""
        found: list[int] = []
        fallback = self.workflow.steps[position].fallback
        while fallback is not None:
            found.append(fallback)
            fallback = self.workflow.steps[fallback].fallback
        return found

    def concluded(self) -> Decision:
        """Choose what is sent, and say where the run stands."""
        done = self.decision.loops_done  # a condition that failed may have ended the run since
        self.decision.loops_done = [p for p in done if p in self.snapshot.loops]
        if not self.decision.loops_done:  # else ``close_loop`` follows, and chooses what starts
            admission.admit(self.workflow, self.decision, None)
        standing.stand(self)
        if self.decision.undoing:
            admission.admit(self.workflow, self.decision, None)
        return self.decision

    def reopen(
        self,
        heads: Collection[int],
        again: set[int],
        *,
        keep_items: bool,
        spared: int | None = None,
    ) -> None:
        """Take back the end of the steps of ``again`` and start ``heads``, which are among them.

        With them goes all that the end of the run cut off. ``keep_items``: a for_each among
        ``heads`` goes on with its unfinished items. ``spared`` stays as it is.
        """
        lost = [p for p in self._lost(heads) if p not in again and p != spared]
        cut = [p for p in self._cut_off() if p not in again]
        whole = {*again, *lost, *cut, *(f for p in lost for f in self.chain(p))}
        looping = self._loops_to_go_on([*(heads if keep_items else ()), *lost, *cut])
        starting = [p for p in (*heads, *lost) if p not in looping and self._may_start(p)]
        self._take_back_verdict(whole)
        for position in sorted(whole):
            if position in looping:
                self._go_on_looping(position)
            else:
                self._block(position)
        for position in starting:
            self._start(position)
        self._decide_edges(whole, self._owners(heads) | ({spared} if spared is not None else set()))
        self._touched += sorted(whole, reverse=True)
        self._spread()
        self._drop_idle_fallbacks(whole)

    # -- who goes on ---------------------------------------------------------------------------

    def _owners(self, positions: Iterable[int]) -> set[int]:
        """Whom these steps stand in for: their failure is open again."""
        owners: set[int] = set()
        for position in positions:
            owner = self.workflow.steps[position].owner
            while owner is not None:
                owners.add(owner)
                owner = self.workflow.steps[owner].owner
        return owners

    def _lost(self, heads: Collection[int]) -> list[int]:
        """Steps that failed and that no policy dealt with: the run cannot complete over them."""
        spared = self._owners(heads)
        return [
            step.position
            for step in self.workflow.forward
            if step.owner is None
            and step.position not in spared
            and self.snapshot.code(step.position) in _FAILED
            and not is_handled(self.workflow, self.snapshot, step)
        ]

    def _cut_off(self) -> list[int]:
        """Steps that were cancelled because the run ended; a late branch is none of them."""
        marks = self.snapshot.marks
        return [
            step.position
            for step in self.workflow.forward
            if self.snapshot.code(step.position) == Code.CANCELLED
            and not (step.outs and all(marks[edge.index] == Mark.DEAD for edge in step.outs))
        ]

    def _may_start(self, position: int) -> bool:
        """Whether its needs were met once; what never began is considered anew instead."""
        return (
            self.snapshot.code(position) in _BEGAN
            and position not in self.snapshot.barred
            and Ref(position) in self.stored.rows
        )

    def _loops_to_go_on(self, positions: Iterable[int]) -> set[int]:
        return {
            p
            for p in positions
            if self.workflow.steps[p].for_each is not None
            and (self.workflow.steps[p].owner is None or self.snapshot.code(p) in _FAILED)
            and self._items(p)
        }

    def _items(self, position: int) -> dict[int, StepState]:
        """The items of the for_each as it last spread out (those of an earlier time: skipped)."""
        return {
            ref.item: state
            for ref, state in self.stored.rows.items()
            if ref.position == position and ref.item is not None and state != StepState.SKIPPED
        }

    # -- taking back ---------------------------------------------------------------------------

    def _take_back_verdict(self, whole: set[int]) -> None:
        snapshot, keys = self.snapshot, {self.workflow.steps[p].key for p in whole}
        snapshot.verdict = None
        snapshot.paused = False
        snapshot.held = []
        snapshot.barred = [p for p in snapshot.barred if p not in whole]
        snapshot.warnings = [w for w in snapshot.warnings if w["step"] not in keys]
        # What was on its way found the run paused: take all messages for lost.
        for position, raw in enumerate(snapshot.codes):
            if raw == Code.READY | QUEUED:
                snapshot.codes[position] = Code.READY
        for loop in snapshot.loops.values():
            loop.ready = sorted(loop.ready + loop.queued)
            loop.queued = []

    def _block(self, position: int) -> None:
        self._open_edges(position)
        if self.snapshot.code(position) == Code.BLOCKED:
            return
        if self.snapshot.code(position) == Code.COMPLETED:
            self.note_set_back(position)
        self.assign(position, Code.BLOCKED)
        if Ref(position) in self.stored.rows:
            self.snapshot.reopened.append(position)
            self.decision.reopened.append(position)

    def _open_edges(self, position: int) -> None:
        for edge in self.workflow.steps[position].outs:
            self.snapshot.marks[edge.index] = Mark.OPEN

    def _start(self, position: int) -> None:
        self._had_row(position)
        self.assign(position, Code.READY)
        self.decision.again.append(position)
        self.emit("step.ready", Ref(position))

    def _go_on_looping(self, position: int) -> None:
        """The items that completed stay done, the others are released again."""
        self._open_edges(position)
        items = self._items(position)
        left = sorted(i for i, state in items.items() if state != StepState.COMPLETED)
        loop = Loop(total=len(items), released=len(items), ok=len(items) - len(left), again=left)
        self.assign(position, Code.LOOPING)
        self.snapshot.loops[position] = loop
        self.decision.loops_again.append(position)
        self.decision.reopened_items += [Ref(position, index) for index in left]
        self.emit("step.reopened", Ref(position), items=len(left))
        if not left:
            self.decision.loops_done.append(position)

    def drop_item(self, ref: Ref) -> None:
        """An item of a run that is ending is given up; closes the loop after its last one."""
        loop = self.snapshot.loops[ref.position]
        loop.released -= 1
        loop.total -= 1
        if not loop.live and loop.all_released:
            self.decision.loops_done.append(ref.position)

    # -- edges ---------------------------------------------------------------------------------

    def _decide_edges(self, whole: set[int], owners: set[int]) -> None:
        """Edges from what stays done into what may start anew are decided again: while a run
        ends, or after a join has fired, nobody asks for their conditions."""
        for position in owners:
            self._open_edges(position)
        for step in self.workflow.forward:
            if step.position in whole or step.position in owners:
                continue
            anew = [e for e in step.outs if e.target in whole and self._is_blocked(e.target)]
            end = self._end_of(step) if anew else None
            if end is None:
                continue
            for edge in anew:
                self.snapshot.marks[edge.index] = Mark.OPEN
            self._leave(step, end, self.stored.routes.get(step.position))

    def _is_blocked(self, position: int) -> bool:
        return self.snapshot.code(position) == Code.BLOCKED

    def _end_of(self, step: StepPlan) -> On | None:
        """How the edges of a step see its end; None: it has not ended, or as a late branch."""
        code = self.snapshot.code(step.position)
        if code == Code.COMPLETED:
            return On.COMPLETED
        if code == Code.SKIPPED:
            return On.SKIPPED
        if code not in _FAILED:
            return None
        if any(self.snapshot.code(p) == Code.COMPLETED for p in self.chain(step.position)):
            return On.COMPLETED
        if step.owner is not None or step.handles_failure:
            return On.FAILED
        return On.COMPLETED if step.on_error == "continue" else None

    def _drop_idle_fallbacks(self, whole: set[int]) -> None:
        """A fallback whose owner has its end, and no use for it, will not run."""
        for position in sorted(whole):
            owner = self.workflow.steps[position].owner
            if owner is None or owner in whole or not self._is_blocked(position):
                continue
            self.skip(position, "fallback_not_needed")
