"""The step rows as a history implies them: what retries, rounds and repairs are decided from."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.compiled import CompiledWorkflow
from orchestrator.core.decision import Decision, Ref
from orchestrator.core.outcomes import Failed, Outcome
from orchestrator.core.settling import Expanded
from orchestrator.core.states import StepState

SECOND = 1_000_000
_S = StepState
_OPEN_ITEM = frozenset({_S.BLOCKED, _S.READY, _S.RETRYING, _S.WAITING})
_CUT_OFF = _OPEN_ITEM | {_S.RUNNING}
_LOOPS_AGAIN = frozenset({_S.FAILED, _S.TIMED_OUT, _S.CANCELLED, _S.BLOCKED})
_SAGA = frozenset({_S.COMPLETED, _S.COMPENSATING})
_TRIED_AGAIN = frozenset({_S.RETRYING, _S.READY})
_EXCUSED = frozenset({_S.FAILED, _S.TIMED_OUT, _S.BLOCKED})


@dataclass(slots=True)
class Row:
    """One step, or item. ``due``: when its timer may fire at the earliest, where there is one, in
    microseconds as ``Recorded.at``."""

    state: StepState = StepState.READY
    waiting_for: str = ""
    attempt: int = 0
    n_retries: int = 0
    n_lost: int = 0
    round: int = 1
    due: int | None = None

    def afresh(self, to: StepState) -> None:
        """As a repair, or another try, leaves it: attempts go on counting."""
        self.state, self.waiting_for, self.due = to, "", None
        self.n_retries = self.n_lost = 0
        self.round = 1


class Rows:
    """The rows of one run. ``apply`` does to them what the engine's SQL does."""

    def __init__(self, workflow: CompiledWorkflow) -> None:
        self.workflow = workflow
        self.plain: dict[int, Row] = {}
        self.items: dict[int, dict[int, Row]] = {}

    def find(self, ref: Ref) -> Row | None:
        """The row; None when the step has not begun."""
        if ref.item is None:
            return self.plain.get(ref.position)
        return self.items.get(ref.position, {}).get(ref.item)

    def states(self) -> dict[Ref, StepState]:
        """The state of every row, as a repair looks at them."""
        states = {Ref(position): row.state for position, row in self.plain.items()}
        for position, items in self.items.items():
            states.update((Ref(position, index), row.state) for index, row in items.items())
        return states

    def expand(self, position: int, total: int) -> None:
        """Rows for the items of a for_each; those of an earlier try are taken over."""
        items = self.items.setdefault(position, {})
        for index in range(total):
            items.setdefault(index, Row()).afresh(StepState.BLOCKED)

    def expand_undo(self, position: int, only: tuple[int, ...]) -> None:
        """Rows for the compensations of these items; those of an earlier try are taken over."""
        items = self.items.setdefault(position, {})
        for index in only:
            items.setdefault(index, Row()).afresh(StepState.BLOCKED)

    def completed_items(self, position: int) -> tuple[int, ...]:
        """The items of a for_each that completed and have not been undone, in order."""
        items = self.items.get(position, {})
        return tuple(sorted(i for i, row in items.items() if row.state is StepState.COMPLETED))

    def start(self, ref: Ref) -> int:
        """READY becomes RUNNING; the number of the attempt that begins."""
        row = self.find(ref)
        if row is None:
            row = self.plain[ref.position] = Row()
        row.state, row.due = StepState.RUNNING, None
        row.attempt += 1
        return row.attempt

    def settle(
        self, decision: Decision, outcome: Outcome | Expanded, *, lost: bool, at: int
    ) -> None:
        """The move of the step that answered: its counters, and when its timer is due."""
        subject = decision.subject
        row = self.find(subject.ref) if subject is not None else None
        if subject is None or row is None:
            return
        row.due = None
        if subject.again:
            row.round, row.n_retries = row.round + 1, 0
        elif lost:
            row.n_lost += 1
        elif isinstance(outcome, Failed) and outcome.uses_a_retry and subject.to in _TRIED_AGAIN:
            row.n_retries += 1
        if subject.wake_after is not None:
            row.due = at + round(subject.wake_after * SECOND)

    # -- what a decision does to the rows ------------------------------------------------------

    def apply(self, decision: Decision, *, waiting_for: str = "") -> None:
        """Carry a decision out, in the order of the engine's own writing."""
        if decision.reopened or decision.loops_again:
            self._reopen(decision)
        for position in decision.again:
            self.plain[position].afresh(StepState.READY)
        for ref in decision.ready:
            self._ready(ref)
        subject = decision.subject
        row = self.find(subject.ref) if subject is not None else None
        if subject is not None and row is not None:
            row.state = subject.to
            row.waiting_for = waiting_for if subject.to is StepState.WAITING else ""
        if not decision.is_simple:
            self._rarer(decision)

    def _ready(self, ref: Ref) -> None:
        if ref.item is None:
            self.plain[ref.position] = Row()
        else:
            self.items[ref.position][ref.item].state = StepState.READY

    def _reopen(self, decision: Decision) -> None:
        for position in decision.reopened:
            self.plain[position].afresh(StepState.BLOCKED)
            for row in self.items.get(position, {}).values():
                row.state = StepState.SKIPPED
        for position in decision.loops_again:
            self.plain[position].afresh(StepState.RUNNING)
            for row in self.items.get(position, {}).values():
                if row.state in _LOOPS_AGAIN:
                    row.afresh(StepState.BLOCKED)

    def _rarer(self, decision: Decision) -> None:
        for position, _ in decision.failed:
            self.plain.setdefault(position, Row()).state = StepState.FAILED
        for positions, to in (
            (decision.undoing, StepState.COMPENSATING),
            (decision.kept, StepState.COMPLETED),
            (decision.undone, StepState.COMPENSATED),
        ):
            for position in positions:
                row = self.plain[position]  # one that did not complete keeps its state
                row.state = to if row.state in _SAGA else row.state
        for refs, to in (
            (decision.items_undoing, StepState.COMPENSATING),
            (decision.items_undone, StepState.COMPENSATED),
            (decision.items_kept, StepState.COMPLETED),
        ):
            for ref in refs:
                self.items[ref.position][ref.item or 0].state = to
        for position in decision.excused:
            row = self.plain[position]
            row.state = StepState.SKIPPED if row.state in _EXCUSED else row.state
        self._cancel(decision)

    def _cancel(self, decision: Decision) -> None:
        for position in decision.cancelled:
            row = self.plain.get(position)
            if row is not None and row.state in _CUT_OFF:
                row.state, row.waiting_for, row.due = StepState.CANCELLED, "", None
        for position in decision.cancel_items:
            loop = decision.snapshot.loops.get(position)
            open_states = _OPEN_ITEM if loop is not None and loop.running else _CUT_OFF
            doubts = loop is not None and loop.waits.get("review")
            for row in self.items.get(position, {}).values():
                if row.state in open_states and not (doubts and row.waiting_for == "review"):
                    row.state, row.waiting_for, row.due = StepState.CANCELLED, "", None
