"""A run on paper: the same decisions as live, over answers that are given, on a clock that jumps.

Nothing is interpreted here a second time: what follows from an answer is decided by
``core.planning``, as it is by workers and by replay. This module only keeps the agenda (which body
ends when, which wait, which timer) and lets the world say what each of them answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any, NamedTuple, Protocol

from orchestrator.core import planning
from orchestrator.core.compiled import CompiledWorkflow
from orchestrator.core.decision import Decision, EventDraft, Ref
from orchestrator.core.outcomes import Failed, Outcome, StartChild, UndoChildren, Waiting
from orchestrator.core.propagation import Conditions
from orchestrator.core.replay_log import name_of
from orchestrator.core.replay_rows import SECOND, Row, Rows
from orchestrator.core.settling import Expanded, Fact
from orchestrator.core.snapshot import Snapshot
from orchestrator.core.states import RUN_TERMINAL, RunState, StepState

JITTER = 0.5
"""What a retry's delay is drawn with: the middle."""

Parked = Waiting | StartChild | UndoChildren
_AT_WORK = frozenset({RunState.PENDING, RunState.RUNNING, RunState.COMPENSATING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a body, or a wait, answers, and after how many seconds. ``in_doubt`` and ``warning`` as
    in ``settling.Fact``."""

    outcome: Outcome | Expanded
    seconds: float = 0.0
    in_doubt: str = ""
    warning: dict[str, Any] | None = None


class World(Protocol):
    """What a run on paper meets."""

    @property
    def conditions(self) -> Conditions:
        """The values behind the document's conditions."""
        ...

    def body(self, ref: Ref, row: Row, at: float) -> Told:
        """What this attempt answers; ``at`` is in seconds since the start."""
        ...

    def wait(self, ref: Ref, row: Row, parked: Parked, at: float) -> Told | None:
        """What ends this wait; None: nothing does."""
        ...

    def answered(self, ref: Ref, outcome: Outcome | Expanded) -> None:
        """Before it is decided what the answer means: conditions will ask for its output."""
        ...

    def decided(self, ref: Ref, decision: Decision, outcome: Outcome | Expanded) -> None:
        """After that."""
        ...

    def close(self, position: int) -> None:
        """All items of a for_each have ended: its output is asked for next."""
        ...

    def closed(self, position: int, decision: Decision) -> None:
        """After that has been decided."""
        ...

    def count(self) -> None:
        """Another answer is asked for; raises TooLong when it is one too many."""
        ...

    def end(self, decision: Decision) -> None:
        """The run would end with this decision. Its output is worked out; when that fails and
        something has to be undone first, the decision is changed, and goes on."""
        ...


class Moment(NamedTuple):
    """One line of the history on paper, ``at`` seconds after the start."""

    at: float
    type: str
    step: str
    payload: dict[str, Any]


class TooLong(Exception):
    """The run would take more answers than a simulation may ask for."""


@dataclass(slots=True)
class Paper:
    """A run on paper: where it stands, and how it came there. ``worked`` and ``waited`` are the
    seconds of each until now."""

    workflow: CompiledWorkflow
    world: World
    rows: Rows = field(init=False)
    snapshot: Snapshot = field(init=False)
    state: RunState = RunState.PENDING
    waiting_for: str = ""
    now: float = 0.0
    worked: float = 0.0
    waited: float = 0.0
    history: list[Moment] = field(default_factory=list)
    _agenda: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _order: count[int] = field(default_factory=count)
    _timed_out: bool = False

    def __post_init__(self) -> None:
        workflow = self.workflow
        self.rows = Rows(workflow)
        self.snapshot = Snapshot.fresh(len(workflow.steps), len(workflow.edges))

    @property
    def ended(self) -> bool:
        """Whether the run is over."""
        return self.state in RUN_TERMINAL

    def play(self) -> None:
        """From the start to the end, or to where nothing moves any more. Raises TooLong."""
        self._follow(planning.begin(self.workflow, self.world.conditions))
        while not self.ended:
            if not self._agenda:
                if not self._ends_by_clock():
                    return
                continue
            at, _, act = self._agenda[0]
            if self._advance(at):
                continue  # the run's own time came first
            heappop(self._agenda)
            act()

    # -- the clock -----------------------------------------------------------------------------

    def _at(self, seconds: float, act: Callable[[], None]) -> None:
        heappush(self._agenda, (self.now + seconds, next(self._order), act))

    def _advance(self, at: float) -> bool:
        """Let time pass until ``at``; True when the run's own time is over before."""
        span = at - self.now
        working = self.state in _AT_WORK
        limit = self._time_left(working=working)
        over = limit is not None and limit < span
        if over and limit is not None:
            span = limit
        self.now = self.now + span if over else at
        if working:
            self.worked += span
        else:
            self.waited += span
        if over:
            self._time_out()
        return over

    def _time_left(self, *, working: bool) -> float | None:
        """Seconds until the run's own time is over, if it goes on as it is; None: never."""
        if self._timed_out:
            return None
        if self.workflow.timeout_is_wall:
            return max(0.0, self.workflow.timeout_s - self.now)
        return max(0.0, self.workflow.timeout_s - self.worked) if working else None

    def _ends_by_clock(self) -> bool:
        """Nothing is on the agenda: a run that waits ends at its time by the clock on the wall."""
        left = self._time_left(working=False)
        if left is None or self.state is not RunState.WAITING:
            return False
        self._advance(self.now + left + 1)
        return True

    def _time_out(self) -> None:
        self._timed_out = True
        words = f"the run's time is over ({self.workflow.timeout_s:g} s)"
        decision = planning.time_out(self.workflow, self.snapshot, message=words)
        if decision is not None:
            self._follow(decision)

    # -- acts ----------------------------------------------------------------------------------

    def _claim(self, ref: Ref) -> None:
        decision = planning.claim(self.workflow, self.snapshot, ref)
        if decision is None:
            return  # paused, or ending: what is READY stays so
        attempt = self.rows.start(ref)
        decision.events.append(EventDraft("step.started", ref, {"attempt": attempt}))
        self._follow(decision)
        self.world.count()
        told = self.world.body(ref, self._row(ref), self.now)
        self._at(told.seconds, partial(self._settle, ref, attempt, told, ""))

    def _settle(self, ref: Ref, attempt: int, told: Told, waited_for: str) -> None:
        row, outcome = self._row(ref), told.outcome
        expected = StepState.WAITING if waited_for else StepState.RUNNING
        if row.attempt != attempt or row.state is not expected:
            return  # cancelled meanwhile: a late answer changes nothing
        self._expand(ref, outcome)
        self.world.answered(ref, outcome)
        fact = Fact(
            ref=ref,
            outcome=outcome,
            waited_for=waited_for,
            n_retries=row.n_retries,
            n_lost=row.n_lost,
            round_number=row.round,
            jitter=JITTER,
            in_doubt=told.in_doubt,
            warning=told.warning,
        )
        decision = planning.settle(self.workflow, self.snapshot, fact, self.world.conditions)
        self.rows.settle(decision, outcome, lost=False, at=round(self.now * SECOND))
        self.world.decided(ref, decision, outcome)
        self._follow(decision, waiting_for=_waits_for(outcome))
        self._go_on(ref, attempt, decision, outcome)

    def _go_on(
        self, ref: Ref, attempt: int, decision: Decision, outcome: Outcome | Expanded
    ) -> None:
        """A step that is not done yet comes back: by what ends its wait, or by its timer."""
        subject = decision.subject
        if subject is None or self.ended:
            return
        if subject.wake_after is not None:
            retries = subject.to is StepState.RETRYING
            self._at(subject.wake_after, partial(self._wake, ref, attempt, retries))
        elif subject.to is StepState.WAITING and isinstance(outcome, Parked):
            self.world.count()
            told = self.world.wait(ref, self._row(ref), outcome, self.now)
            if told is not None:
                kind = _waits_for(outcome)
                self._at(told.seconds, partial(self._settle, ref, attempt, told, kind))

    def _wake(self, ref: Ref, attempt: int, retries: bool) -> None:  # noqa: FBT001 - of a partial
        row = self._row(ref)
        expected = StepState.RETRYING if retries else StepState.WAITING
        if row.attempt != attempt or row.state is not expected:
            return
        decision = planning.wake(self.workflow, self.snapshot, ref, retries=retries)
        if decision is not None:
            self._follow(decision)

    def _expand(self, ref: Ref, outcome: Outcome | Expanded) -> None:
        if not isinstance(outcome, Expanded):
            return
        if outcome.only is not None:
            self.rows.expand_undo(ref.position, outcome.only)
        else:
            self.rows.expand(ref.position, outcome.total)

    # -- what follows --------------------------------------------------------------------------

    def _follow(self, decision: Decision, *, waiting_for: str = "") -> None:
        """Make the decision true, close the loops that are whole, and take up what may start."""
        if decision.ended and decision.came_back is None:
            self.world.end(decision)
        for draft in decision.events:
            name = name_of(self.workflow, draft.ref)
            self.history.append(Moment(self.now, draft.type, name, draft.payload))
        self.rows.apply(decision, waiting_for=waiting_for)
        self.snapshot = decision.snapshot
        self.state, self.waiting_for = decision.run_state, decision.waiting_for
        self.world.conditions.see(self.snapshot)
        for ref in decision.dispatch:
            self._at(0.0, partial(self._claim, ref))
        for position in decision.loops_done:
            if self.ended or position not in self.snapshot.loops:
                return
            self.world.close(position)
            closing = planning.close_loop(
                self.workflow, self.snapshot, position, self.world.conditions
            )
            self.world.closed(position, closing)
            self._follow(closing)

    def _row(self, ref: Ref) -> Row:
        row = self.rows.find(ref)
        if row is None:
            raise LookupError(f"{name_of(self.workflow, ref)} has not begun")
        return row


def _waits_for(outcome: Outcome | Expanded) -> str:
    match outcome:
        case Waiting(kind=kind):
            return kind
        case StartChild() | UndoChildren():
            return "child"
        case Failed():  # it leaves in doubt what has to be known
            return "review"
        case _:
            return "timer"
