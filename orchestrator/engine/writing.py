"""A decision becomes rows: one guarded statement, then the rarer changes beside it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

from orchestrator.conf import engine_settings
from orchestrator.core import saga
from orchestrator.core.decision import Decision, EventDraft
from orchestrator.engine import advancing, ending
from orchestrator.engine.change import Change, claim_of, company_of, events_of, new_rows, scope_of
from orchestrator.engine.plain_waking import plain_waking
from orchestrator.engine.values import Values
from orchestrator.engine.work import worker_name
from orchestrator.models import loops, moves, outbox_rows, repair_rows, step_moves, timer_rows
from orchestrator.models.advance import advance
from orchestrator.models.moves import Write
from orchestrator.models.wake import wake


def write(change: Change, values: Values) -> datetime:
    """Write everything but the rarer changes, in one statement; see ``write_beside``.

    Raises MovedOn or StaleFence. Autocommits when no transaction is open. Afterwards ``change.run``
    is at its new version, so that the worker may go on from memory.
    """
    decision, run = change.decision, change.run
    end = None
    if decision.ended and decision.came_back is None:
        cost = (change.subject or {}).get("cost")
        end = ending.final_words(decision, values, subject_cost=cost)
    if end is not None:
        decision.events.append(EventDraft(f"run.{decision.run_state}", None, end.pop("event")))
    plain = advancing.plain_move(change, end)
    if plain is not None:
        change.asked_at = time.monotonic()
        return moved(change, advance(plain))
    waking = plain_waking(change, end)
    if waking is not None:
        return moved(change, wake(waking))
    write = Write(
        run_id=run.id,
        version=run.version,
        compact=decision.snapshot.pack(),
        state=decision.run_state,
        waiting_for=decision.waiting_for,
        end=end,
        subject=change.subject,
        ready=new_rows(change),
        claim=claim_of(change),
        settled=change.settled,
        company=company_of(change),
        events=events_of(change),
        worker=worker_name(company=len(change.company)),
        lease=engine_settings().lease,
    )
    change.asked_at = time.monotonic()
    return moved(change, moves.apply_decision(write))


def moved(change: Change, at: datetime) -> datetime:
    """The change is written: the run in memory is as it is in its row."""
    run, decision = change.run, change.decision
    if run.tally is not None:
        cost = (change.subject or {}).get("cost") or 0
        run.tally.add(change.workflow, decision.events, cost=cost)
    run.version += 1
    run.state = decision.run_state
    run.snapshot = decision.snapshot
    return at


def birth_write(change: Change) -> Write:
    """What a new run's first statement carries."""
    decision = change.decision
    return Write(
        run_id=change.run.id,
        version=0,
        compact=decision.snapshot.pack(),
        state=decision.run_state,
        ready=new_rows(change),
        events=events_of(change),
    )


def write_beside(change: Change, values: Values) -> None:
    """The rarer changes of the decision; call in the same transaction, right after ``write``."""
    decision, run, workflow = change.decision, change.run, change.workflow
    for position, error in decision.failed:
        step_moves.insert_failed(run_id=run.id, step=workflow.steps[position], error=error)
    for owner, fallback in decision.covers:
        key = workflow.steps[fallback].key
        step_moves.cover(run.id, owner, key, values.output(fallback))
    _write_saga(change)
    if decision.excused:
        step_moves.excuse(run.id, decision.excused)
    mark_known_rows(change)
    _cancel(change)
    if decision.ended:
        change.posted += ending.tell(run, workflow, decision)


def _write_saga(change: Change) -> None:
    """Finished steps that are being undone, have been, or could not be."""
    decision, run = change.decision, change.run
    if decision.undoing:
        step_moves.move_finished(run.id, decision.undoing, old="completed", new="compensating")
    if decision.kept:
        step_moves.move_finished(run.id, decision.kept, old="compensating", new="completed")
    if decision.undone:
        step_moves.move_finished(run.id, decision.undone, old="compensating", new="compensated")
    loops.move_items(run.id, decision.items_undoing, old="completed", new="compensating")
    loops.move_items(run.id, decision.items_undone, old="compensating", new="compensated")
    loops.move_items(run.id, decision.items_kept, old="compensating", new="completed")
    if decision.came_back is not None:
        word = saga.verdict(change.workflow, decision.snapshot)
        repair_rows.note_compensation(run.id, word)


def release(change: Change) -> None:
    """Items of each for_each that were let go become READY, and failed steps that are tried again.
    Before ``write``, since the lane may claim one of them in it; the run is locked."""
    decision = change.decision
    repair_rows.reopen_steps(change.run.id, decision.reopened)
    repair_rows.resume_loops(change.run.id, decision.loops_again)
    if decision.again:
        step_moves.ready_again(change.run.id, decision.again)
    released: dict[int, list[int]] = {}
    for ref in decision.ready:
        if ref.item is not None:
            released.setdefault(ref.position, []).append(ref.item)
    for position, indexes in released.items():
        queued = [r.item for r in decision.dispatch if r.position == position]
        key = change.workflow.steps[position].key
        loops.release_items(change.run.id, key, indexes, [i for i in queued if i is not None])


def mark_known_rows(change: Change) -> None:
    """Messages on the way for rows that were READY before this decision."""
    decision = change.decision
    fresh = set(decision.ready)
    subject = decision.subject.ref if decision.subject is not None else None
    known = [r for r in (*decision.dispatch, *decision.carried) if r not in fresh and r != subject]
    if known:
        steps = change.workflow.steps
        names = [(steps[r.position].key, scope_of(r.item)) for r in known]
        step_moves.mark_dispatched(change.run.id, names)


def _cancel(change: Change) -> None:
    decision = change.decision
    if not decision.cancelled and not decision.cancel_items:
        return
    steps = change.workflow.steps
    items = [steps[position].key for position in decision.cancel_items]
    running = [
        steps[position].key
        for position in decision.cancel_items
        if _nothing_runs(decision, position)
    ]
    in_doubt = [steps[p].key for p in decision.cancel_items if _has_doubts(decision, p)]
    gone = step_moves.cancel_steps(
        change.run.id,
        positions=decision.cancelled,
        item_keys=items,
        running_item_keys=running,
        doubted_item_keys=in_doubt,
    )
    timer_rows.drop_timers([step.id for step in gone])
    change.posted += _tell_waits(change.run.id, gone)


def _nothing_runs(decision: Decision, position: int) -> bool:
    loop = decision.snapshot.loops.get(position)
    return loop is None or loop.running == 0


def _has_doubts(decision: Decision, position: int) -> bool:
    loop = decision.snapshot.loops.get(position)
    return loop is not None and bool(loop.waits.get("review"))


def _tell_waits(run_id: UUID, gone: Iterable[step_moves.CancelledStep]) -> list[int]:
    """A cancelled wait for a person or a child concerns others: they are told by the outbox."""
    posted = []
    for step in gone:
        named = {"step": step.key, "scope": step.scope, "attempt": step.attempt}
        if step.waited_for == "person":
            payload = {**named, "reason": "cancelled"}
            posted.append(outbox_rows.post("gate.closed", run_id, payload))
        elif step.waited_for == "child":
            posted.append(outbox_rows.post("child.cancel", run_id, {"step_id": str(step.id)}))
    return posted
