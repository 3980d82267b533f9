"""What planning answers: the new compact state and the changes that make it true in the rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from orchestrator.core.snapshot import Snapshot, Undo
from orchestrator.core.states import RunState, StepState

DECISIONS = 1
"""The version of the rules by which this build decides, recorded as each run starts. A change of
what planning answers to the same facts needs the next number, and the old answer for runs of the
old one (ADR 0021): their histories are replayed by it."""


class Ref(NamedTuple):
    """One unit of work: a step by position, or one item of its for_each by index."""

    position: int
    item: int | None = None


@dataclass(slots=True)
class EventDraft:
    """One line of the history, before it has a sequence number."""

    type: str
    ref: Ref | None = None
    payload: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Subject:
    """The move of the step that the fact was about.

    ``wake_after`` seconds until a timer of ``wake_kind`` makes it ready again; ``again`` marks
    another round of a repeat (output becomes ``previous``).
    """

    ref: Ref
    to: StepState
    error: dict[str, Any] | None = None
    wake_after: float | None = None
    wake_kind: str = ""
    again: bool = False
    loop_total: int | None = None


@dataclass(slots=True, kw_only=True)
class Decision:
    """Everything one fact leads to. Applied in one transaction, or not at all.

    ``ready``: steps and items that became READY (rows to insert, or items to release);
    ``claim``: the one the worker at hand takes at once, ``company``: those that it takes with it,
    to run after it; ``dispatch``: those to send a message
    for; ``carried``: READY ones a canvas of the worker's own message brings;
    ``covers``: (owner, fallback) pairs whose fallback's output now stands for the owner's;
    ``failed``: steps that failed without running (condition errors), with their errors;
    ``again``: steps with a row that are READY once more; ``excused``: steps with a row that count
    as skipped, optional ones that failed or reopened ones that nothing reaches;
    ``reopened``: steps with a row that a repair made BLOCKED again (those that are READY or skipped
    by the same decision too); ``loops_again``: for_each steps that a repair set to work again with
    the items of ``reopened_items``, and no others;
    ``cancelled``: steps with a row that were cancelled (``cancel_items``: loops whose open items
    were too); ``loops_done``: for_each steps to close by a follow-up decision once item rows are
    written; ``undoing``, ``undone`` and ``kept``: finished steps whose compensation
    starts, has succeeded, or has failed (``items_undoing``, ``items_undone``, ``items_kept``: the
    same of single items); ``came_back``: the run stands, or is over, as it did
    before steps of it were undone; ``run_state`` and ``waiting_for``: where the run stands after
    it; ``asked``: the conditions that were asked, with what they said (see ``Turn.ask``).
    """

    snapshot: Snapshot
    run_state: RunState = RunState.RUNNING
    waiting_for: str = ""
    subject: Subject | None = None
    ready: list[Ref] = field(default_factory=list)
    claim: Ref | None = None
    company: list[Ref] = field(default_factory=list)
    dispatch: list[Ref] = field(default_factory=list)
    carried: list[Ref] = field(default_factory=list)
    covers: list[tuple[int, int]] = field(default_factory=list)
    failed: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    again: list[int] = field(default_factory=list)
    excused: list[int] = field(default_factory=list)
    reopened: list[int] = field(default_factory=list)
    loops_again: list[int] = field(default_factory=list)
    reopened_items: list[Ref] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)
    cancel_items: list[int] = field(default_factory=list)
    loops_done: list[int] = field(default_factory=list)
    undoing: list[int] = field(default_factory=list)
    undone: list[int] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    items_undoing: list[Ref] = field(default_factory=list)
    items_undone: list[Ref] = field(default_factory=list)
    items_kept: list[Ref] = field(default_factory=list)
    came_back: Undo | None = None
    events: list[EventDraft] = field(default_factory=list)
    asked: dict[str, bool | None] = field(default_factory=dict)

    def record_asked(self) -> None:
        """What conditions said goes with the first line of history: replay asks them there."""
        if self.asked and self.events:
            self.events[0].payload["asked"] = self.asked
            self.asked = {}

    def absorb(self, later: Decision) -> None:
        """Go on with what the next fact led to; both lead on (``leads_on``)."""
        self.snapshot = later.snapshot
        self.ready += later.ready
        self.loops_done += later.loops_done
        self.events += later.events

    @property
    def ended(self) -> bool:
        """Whether the run is over with this decision."""
        return self.run_state in (
            RunState.COMPLETED,
            RunState.FAILED,
            RunState.CANCELLED,
            RunState.TIMED_OUT,
        )

    @property
    def is_plain(self) -> bool:
        """Whether one guarded statement can write it (no timers, loops, cancellations, end)."""
        return self.is_simple and not self.ended

    @property
    def is_simple(self) -> bool:
        """Whether it is plain but for the end of the run, which one statement can write too as
        long as nobody has to be told."""
        return (
            self.leads_on
            and not self.loops_done
            and not any(
                ref.item is not None for ref in (*self.ready, *self.dispatch, *self.company)
            )
        )

    @property
    def leads_on(self) -> bool:
        """Whether it is no more than the end of one step, what became READY by it, and perhaps the
        end of a for_each."""
        subject = self.subject
        return not (
            self.covers
            or self.failed
            or self.again
            or self.excused
            or self.cancelled
            or self.cancel_items
            or self.undoing
            or self.undone
            or self.kept
            or self.items_undone
            or self.items_kept
            or self.reopened
            or self.loops_again
            or (subject is not None and (subject.wake_after is not None or subject.again))
            or (subject is not None and subject.loop_total is not None)
        )
