"""Settling what one lane had in hand together: one decision, one statement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from orchestrator.clock import jitter
from orchestrator.core import planning
from orchestrator.core.admission import Lane
from orchestrator.core.decision import Ref, Subject
from orchestrator.core.outcomes import Succeeded, Usage
from orchestrator.core.settling import Fact, NotBegun
from orchestrator.core.states import StepState
from orchestrator.crash import Unit, crash_point
from orchestrator.engine import ending, outbox
from orchestrator.engine.change import Change
from orchestrator.engine.settle import apply_change, close_loops, prepare_claim
from orchestrator.engine.settled import Settled
from orchestrator.engine.values import Values
from orchestrator.engine.work import Answer, Work
from orchestrator.engine.writing import mark_known_rows, write
from orchestrator.models import rows
from orchestrator.models.moves import MovedOn, StaleFence
from orchestrator.models.rows import RunRow

_FREE = Usage()
Member = tuple[Work, Succeeded | NotBegun]


def is_plain(answer: Answer) -> bool:
    """Whether the answer can be settled together with others."""
    outcome = answer.outcome
    return isinstance(outcome, Succeeded) and outcome.usage == _FREE and answer.effect is None


class Together:
    """What became of a settle of several: ``settled`` None: none of them could be settled so; then,
    and for those ``after`` the ones that were, each is settled by itself."""

    def __init__(self, settled: Settled | None, values: Values, after: Sequence[Member]) -> None:
        self.settled, self.values, self.after = settled, values, after


def settle_together(members: Sequence[Member], lane: Lane, *, alone: bool) -> Together:
    """Write what ``members`` answered, as far as they can be settled together, and claim what is
    next. ``alone``: nothing else of the run is in flight, as far as we know.

    Raises StaleFence when one of them is no longer ours, and all that writing may raise; nothing
    is written then.
    """
    if alone:
        quick = _try_alone(members, lane)
        if quick is not None:
            return quick
    with Unit("settle_hand"):
        together = _settle_locked(members, lane)
    if together.settled is not None:
        crash_point("hand_settled")
        together.settled.send()
        outbox.handle(together.settled.posted)
    return together


def _try_alone(members: Sequence[Member], lane: Lane) -> Together | None:
    """From memory, in one statement that commits by itself; None when that does not do."""
    first = members[0][0]
    run, values = first.run, first.values
    found = _decide(run, values, members, lane)
    if found is None:
        return Together(None, values, members)
    change, count = found
    decision = change.decision
    ends_quietly = decision.ended and ending.is_quiet(run, first.workflow, decision)
    if not decision.is_simple or (decision.ended and not ends_quietly):
        _unlearn(values, run, members)
        return None
    try:
        at = write(change, values)
    except (MovedOn, StaleFence):
        _unlearn(values, run, members)
        return None
    mark_known_rows(change)
    crash_point("hand_settled")
    settled = Settled(
        run=run,
        workflow=first.workflow,
        dispatch=decision.dispatch,
        claim=decision.claim,
        claim_row=change.claim_row,
        prepared=change.prepared,
        at=at,
        asked_at=change.asked_at,
        company=change.company,
    )
    settled.send()
    return Together(settled, values, members[count:])


def _unlearn(values: Values, run: RunRow, members: Sequence[Member]) -> None:
    """What was not written is not known."""
    for work, _ in members:
        if work.row.index is None:
            values.outputs.pop(work.row.position, None)
    values.see(run.snapshot)


def _settle_locked(members: Sequence[Member], lane: Lane) -> Together:
    first = members[0][0]
    run = rows.lock_run(first.run.id)
    if run is None or run.ended:
        raise StaleFence(f"run {first.run.id} is over")
    if not all(run.snapshot.runs(work.ref.position, work.ref.item) for work, _ in members):
        raise StaleFence(f"steps of run {run.id} are no longer ours")
    values = Values(run, first.workflow)
    values.outputs = dict(first.values.outputs)
    found = _decide(run, values, members, lane)
    if found is None:
        return Together(None, first.values, members)
    change, count = found
    settled = Settled(run=run, workflow=first.workflow)
    apply_change(change, values, settled)
    close_loops(change, values, settled, lane=lane)
    return Together(settled, values, members[count:])


def _decide(
    run: RunRow, values: Values, members: Sequence[Member], lane: Lane
) -> tuple[Change, int] | None:
    """What they lead to, and of how many; None when not even the first can be settled so."""
    workflow = members[0][0].workflow
    facts = _facts(values, members)
    found = planning.settle_many(workflow, run.snapshot, facts, values, lane=lane)
    if found is None:
        return None
    decision, subjects = found
    change = Change(run=run, workflow=workflow, decision=decision)
    change.settled = [
        _move(work, outcome, subject)
        for (work, outcome), subject in zip(members, subjects, strict=False)
    ]
    prepare_claim(change, values, None)
    return change, len(subjects)


def _facts(values: Values, members: Sequence[Member]) -> Iterator[Fact]:
    """One by one: what a step said is known to the conditions behind it, and to none before."""
    for work, outcome in members:
        row = work.row
        if isinstance(outcome, Succeeded) and row.index is None:
            values.learn(row.position, outcome.output)
        values.focus(row)
        yield Fact(
            ref=Ref(row.position, row.index),
            outcome=outcome,
            n_retries=row.n_retries,
            n_lost=row.n_lost,
            round_number=row.round,
            jitter=jitter(),
        )


def _move(work: Work, outcome: Succeeded | NotBegun, subject: Subject) -> dict[str, Any]:
    move: dict[str, Any] = {
        "id": str(work.row.id),
        "fence": work.row.fence,
        "to": str(subject.to),
    }
    if subject.to is StepState.COMPLETED and isinstance(outcome, Succeeded):
        move["output"] = outcome.output
        if work.owes_input:
            move["input"] = work.prepared.input
    return move


def give_back(rest: Sequence[Work]) -> Sequence[Work]:
    """Claimed and not begun: READY for others, and no attempt. Those that have to be settled by
    themselves, since their run is ending, or one of them is no longer ours."""
    members: list[Member] = [(work, NotBegun()) for work in rest]
    lane = Lane(queue=rest[0].step.queue, takes_next=False)
    try:
        with Unit("give_back"):
            together = _settle_locked(members, lane)
    except StaleFence:
        return rest
    if together.settled is not None:
        together.settled.send()
    return [work for work, _ in together.after]
