"""The worker's way through a step: claim, run the body, settle, and on to the next (DESIGN 3)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from orchestrator.conf import engine_settings
from orchestrator.core.admission import Lane, queued_on
from orchestrator.core.errors import Unreadable
from orchestrator.core.outcomes import (
    Failed,
    Outcome,
    StartChild,
    Succeeded,
    UndoChildren,
    Waiting,
)
from orchestrator.core.settling import Expanded, NotBegun
from orchestrator.crash import Unit, crash_point
from orchestrator.engine import (
    breakers,
    children,
    company,
    consequences,
    ending,
    gates,
    inbox,
    outbox,
    parking,
)
from orchestrator.engine.change import Change
from orchestrator.engine.claiming import Order, claim, work_of
from orchestrator.engine.halting import halt
from orchestrator.engine.hands import Hand
from orchestrator.engine.leases import keeper
from orchestrator.engine.pace import pace
from orchestrator.engine.patience import outlast
from orchestrator.engine.ports import LaneControl
from orchestrator.engine.settle import carry_out, decide
from orchestrator.engine.settled import Settled
from orchestrator.engine.unwritable import (
    Unwritable,
    or_refused,
    settle_or_fail,
    why_unwritable,
)
from orchestrator.engine.values import Values
from orchestrator.engine.work import (
    Answer,
    StoodStill,
    Work,
    perform,
    worker_name,
)
from orchestrator.engine.writing import mark_known_rows, write
from orchestrator.models import attempts, loops, rows
from orchestrator.models.moves import EffectMoved, MovedOn, StaleFence
from orchestrator.models.rows import RunRow

logger = logging.getLogger(__name__)

_NEVER_ALONE = (StartChild, UndoChildren, Failed)


def run_step(order: Order, control: LaneControl) -> int:
    """Run the step that a message names, and on along the run for as long as ``control`` allows.

    A message is only a wake-up: nothing happens unless the database says the step is READY.
    Returns how many bodies ran. Every transaction is its own; a database that goes away raises,
    and the lease or the READY sweep finds the step again.
    """
    try:
        work = or_refused(
            lambda refused: claim(replace(order, refused=refused)), "the step's input"
        )
    except (Unreadable, Unwritable) as cause:
        halt(order.run_id, cause)
        return 0
    count = 0
    while work is not None:
        crash_point("claimed")
        if work.is_stale(engine_settings().lease):
            logger.warning("step %s: this process stood still past its lease", work.row.id)
            break
        played = _play_company if work.company else _play_one
        n_bodies, work = played(work, partial(_lane, order, control))
        count += n_bodies
    return count


def _lane(order: Order, control: LaneControl, work: Work) -> Lane:
    """What this worker may claim next; asked when the bodies are over."""
    fuse = engine_settings().fuse
    return Lane(
        queue=work.step.queue,
        takes_next=fuse and control.takes_next(partial(_own_messages, work)),
        carried=order.carried,
        pace=pace.known() if fuse else {},
    )


AskLane = Callable[[Work], Lane]


def _play_one(work: Work, lane: AskLane) -> tuple[int, Work | None]:
    """Run one body and settle it: how many bodies ran, and the next attempt that the lane has."""
    began = time.monotonic()
    answer = _perform(work)
    if answer is None:
        return 0, None
    pace.note(work, time.monotonic() - began)
    crash_point("performed")
    following = settle_or_fail(settle, work, answer, lane(work))
    _tell_service(work, answer)
    return 1, following


def _play_company(first: Work, lane: AskLane) -> tuple[int, Work | None]:
    """The same of all that was claimed together. What cannot be settled together is settled by
    itself before; what has not begun is given back with the settle."""
    done, rest = Hand(first, _give_back).play(_perform_one)
    if not done:
        return 0, None
    wanted = gates.behind_gates(lane(first), first.run.tenant)
    odd = [(work, answer) for work, answer in done if not company.is_plain(answer)]
    members: list[company.Member] = [
        (work, answer.outcome)
        for work, answer in done
        if company.is_plain(answer) and isinstance(answer.outcome, Succeeded)
    ]
    members += [(work, NotBegun()) for work in rest]
    following = None
    for n, (work, answer) in enumerate(odd):
        is_last = not members and n == len(odd) - 1
        taking = wanted if is_last else replace(wanted, takes_next=False)
        following = settle_or_fail(settle, work, answer, taking)
    if members:
        alone = not odd and first.run.snapshot.running == len(members)
        following = _settle_company(members, wanted, alone=alone)
    return len(done), following


def _perform_one(work: Work) -> Answer | None:
    """A body of several, whose leases are kept already."""
    answer = _performed(work)
    if answer is not None:
        crash_point("performed")
    return answer


def _settle_company(members: Sequence[company.Member], lane: Lane, *, alone: bool) -> Work | None:
    """Settle them together, and by themselves where that does not do."""
    following = None
    try:
        act = partial(company.settle_together, members, lane, alone=alone)
        together = outlast(act)
        if together.settled is not None:
            following = work_of(together.settled, together.settled.run, together.values)
            lane = replace(lane, takes_next=False)
        left = together.after
    except EffectMoved:  # of the step that was to be claimed with it
        return _settle_company(members, replace(lane, takes_next=False), alone=False)
    except StaleFence:
        left = members
    except Exception as error:
        if why_unwritable(error) is None:
            raise
        left = members
    for n, (work, outcome) in enumerate(left):
        is_last = n == len(left) - 1
        taking = lane if is_last else replace(lane, takes_next=False)
        more = settle_or_fail(settle, work, Answer(outcome=outcome), taking)
        following = following or more
    return following


def _give_back(rest: Sequence[Work]) -> None:
    for work in company.give_back(rest):
        lane = Lane(queue=work.step.queue, takes_next=False)
        settle_or_fail(settle, work, Answer(outcome=NotBegun()), lane)


def _tell_service(done: Work, answer: Answer) -> None:
    """After the settle: the breaker hears of the call, and a limited gate lets the next through."""
    if done.step.breaker and done.calls_outside:
        breakers.note(done.step, done.row, answer.outcome, tenant=done.run.tenant)
    if done.row.passed:
        parking.hand_on(done.row.passed)


def _own_messages(work: Work) -> int:
    return queued_on(work.workflow, work.run.snapshot, work.step.queue)


def _perform(work: Work) -> Answer | None:
    """What the body answered; None when this process stood still: the step is not ours any more."""
    row, limit_s = work.row, work.step.timeout_s
    with keeper.holding(row.id, row.fence, timeout_s=limit_s, since=work.asked_at):
        return _performed(work)


def _performed(work: Work) -> Answer | None:
    try:
        answer = perform(work, max_items=engine_settings().max_items)
    except StoodStill:
        logger.warning("step %s: this process stood still before its effect", work.row.id)
        return None
    if isinstance(answer.outcome, StartChild):
        refusal = children.refusal(work.run, work.workflow, answer.outcome)
        answer = Answer(outcome=refusal) if refusal is not None else answer
    return answer


def settle(work: Work, answer: Answer, lane: Lane) -> Work | None:
    """Write what the body answered; the next attempt that the lane claimed with it, or None.

    A lost lease changes nothing: the late result is kept as evidence.
    """
    lane = gates.behind_gates(lane, work.run.tenant)
    quick = _settle_alone(work, answer, lane)
    if quick is not None:
        return quick[0]
    try:
        with Unit("settle"):
            settled, run, values = _settle_locked(work, answer, lane)
    except EffectMoved:  # of the step that was to be claimed with it: settle, and claim nothing
        return settle(work, answer, replace(lane, takes_next=False))
    except StaleFence:
        _keep_evidence(work, answer.outcome)
        return None
    crash_point("settled")
    settled.send()
    outbox.handle(settled.posted)
    return work_of(settled, run, values)


def _settle_alone(work: Work, answer: Answer, lane: Lane) -> tuple[Work | None] | None:
    """The hot path: nothing else of the run is in flight, so decide from memory and write
    everything in one autocommitted statement. None when it does not apply, or somebody moved the
    run meanwhile; then the caller takes the lock and decides anew."""
    run, outcome = work.run, answer.outcome
    if run.snapshot.running != 1 or run.snapshot.loops or isinstance(outcome, _NEVER_ALONE):
        return None
    change = decide(
        run, work.workflow, work.values, work.row, outcome, lane=lane, effect=answer.effect
    )
    _pay_input(work, change)
    if isinstance(outcome, Waiting):
        consequences.wait_alone(change, outcome)
    decision = change.decision
    ends_quietly = decision.ended and ending.is_quiet(run, work.workflow, decision)
    if not decision.is_simple or (decision.ended and not ends_quietly):
        work.values.see(run.snapshot)
        return None
    try:
        at = write(change, work.values)
    except (MovedOn, StaleFence):
        work.values.see(run.snapshot)
        return None
    mark_known_rows(change)
    crash_point("settled")
    settled = Settled(
        run=run,
        workflow=work.workflow,
        dispatch=decision.dispatch,
        claim=decision.claim,
        claim_row=change.claim_row,
        prepared=change.prepared,
        at=at,
        asked_at=change.asked_at,
        company=change.company,
    )
    settled.send()
    return (work_of(settled, run, work.values),)


def _settle_locked(work: Work, answer: Answer, lane: Lane) -> tuple[Settled, RunRow, Values]:
    outcome = answer.outcome
    run, row = rows.lock_run(work.run.id), work.row  # whether it is still ours, the write says
    if run is None or run.ended or not run.snapshot.runs(work.ref.position, work.ref.item):
        raise StaleFence(f"step {work.row.id} is no longer ours")
    values = Values(run, work.workflow)
    values.outputs = work.values.outputs
    if isinstance(outcome, Expanded) and outcome.only is not None:
        loops.insert_undo_items(run.id, work.step, outcome.only)
    elif isinstance(outcome, Expanded):
        loops.insert_items(run.id, work.step, work.prepared.items or [])
    change = decide(run, work.workflow, values, row, outcome, lane=lane, effect=answer.effect)
    _pay_input(work, change)
    settled = carry_out(change, values, row, outcome, lane=lane)
    if isinstance(outcome, Waiting):
        inbox.answer_early(run, work.workflow, values, row.id, settled)
    return settled, run, values


def _pay_input(work: Work, change: Change) -> None:
    if work.owes_input and change.subject is not None:
        change.subject["input"] = work.prepared.input


def _keep_evidence(work: Work, outcome: Outcome | Expanded | NotBegun) -> None:
    logger.warning(
        "late result of step %s of run %s (fence %s): kept as evidence, nothing changes",
        work.row.key,
        work.run.id,
        work.row.fence,
    )
    evidence = {"result": type(outcome).__name__.lower()}
    crash_point("evidence:before")
    attempts.record_late(work.row.id, fence=work.row.fence, worker=worker_name(), evidence=evidence)
    crash_point("evidence:after")
