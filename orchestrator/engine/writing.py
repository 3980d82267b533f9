"""A decision becomes rows: one guarded statement, then the rarer changes beside it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from orchestrator.clock import new_id
from orchestrator.conf import engine_settings
from orchestrator.core import saga
from orchestrator.core.compiled import CompiledWorkflow, StepPlan
from orchestrator.core.decision import Decision, EventDraft, Ref
from orchestrator.core.effects import Course
from orchestrator.core.states import StepState
from orchestrator.engine import ending
from orchestrator.engine.values import Values
from orchestrator.engine.work import Prepared, worker_name
from orchestrator.models import loops, moves, outbox_rows, repair_rows, step_moves, timer_rows
from orchestrator.models.moves import Write
from orchestrator.models.rows import RunRow, StepRow


@dataclass(slots=True, kw_only=True)
class Change:
    """A decision on its way into the rows.

    ``subject``: the step's move as documented in sql/apply.sql (filled by the caller, who knows
    its row). ``claim_row`` is the claimed step's row when it has one already, ``prepared`` what
    was worked out for it. ``actor`` signs the events. ``child_id``: the child run that the step
    starts. ``passed``: the limited gate that lets the claimed step through.
    """

    run: RunRow
    workflow: CompiledWorkflow
    decision: Decision
    subject: dict[str, Any] | None = None
    claim_row: StepRow | None = None
    prepared: Prepared | None = None
    actor: str = ""
    child_id: UUID | None = None
    posted: list[int] = field(default_factory=list)
    asked_at: float = 0.0
    passed: str = ""


def scope_of(index: int | None) -> str:
    """An item's scope, ``[index]``; empty for a plain step."""
    return "" if index is None else f"[{index}]"


def name_of(workflow: CompiledWorkflow, ref: Ref) -> str:
    """How the history and messages call it: the key with its scope."""
    return workflow.steps[ref.position].key + scope_of(ref.item)


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
    write = Write(
        run_id=run.id,
        version=run.version,
        compact=decision.snapshot.pack(),
        state=decision.run_state,
        waiting_for=decision.waiting_for,
        end=end,
        subject=change.subject,
        ready=_new_rows(change),
        claim=_claim(change),
        events=_events(change),
        worker=worker_name(),
        lease=engine_settings().lease,
    )
    change.asked_at = time.monotonic()
    at = moves.apply_decision(write)
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
        ready=_new_rows(change),
        events=_events(change),
    )


def _new_rows(change: Change) -> list[dict[str, Any]]:
    """Rows of plain steps that became READY (the one claimed at once is written by the claim)."""
    on_the_way = {*change.decision.dispatch, *change.decision.carried}
    return [
        _row(change, ref) | {"queued": ref in on_the_way}
        for ref in change.decision.ready
        if ref.item is None and ref != change.decision.claim
    ]


def _row(change: Change, ref: Ref) -> dict[str, Any]:
    step = change.workflow.steps[ref.position]
    return {
        "id": str(new_id()),
        "key": step.key,
        "scope": scope_of(ref.item),
        "position": ref.position,
        "index": ref.item,
        "type": step.type,
        "queue": step.queue,
        "plain_timeout_s": step.timeout_s if step.is_plain_body else None,
        "gates": own_gates(step, ref),
    }


def own_gates(step: StepPlan, ref: Ref) -> list[str] | None:
    """The gates of the service and model that the work calls; a for_each itself calls nothing."""
    calls = step.gates and (step.for_each is None or ref.item is not None)
    return list(step.gates) if calls else None


def _claim(change: Change) -> dict[str, Any] | None:
    ref = change.decision.claim
    if ref is None:
        return None
    prepared = change.prepared or Prepared()
    step = change.workflow.steps[ref.position]
    claim: dict[str, Any] = {"timeout_s": step.timeout_s, "input": prepared.input}
    if change.passed:
        claim["passed"] = change.passed
    intent = prepared.effect
    if intent is not None and intent.course in (Course.CALL, Course.DOUBT):
        claim["effect"] = intent.intent
    if change.claim_row is not None:
        return claim | {"id": str(change.claim_row.id), "fence": change.claim_row.fence}
    row = _row(change, ref)
    change.claim_row = new_row(row, prepared)
    return claim | row | {"new": True}


def new_row(row: Mapping[str, Any], prepared: Prepared) -> StepRow:
    """The row as the claim is about to write it, before its first attempt is counted."""
    return StepRow(
        id=UUID(row["id"]),
        key=row["key"],
        scope=row["scope"],
        position=row["position"],
        index=row["index"],
        state=StepState.READY,
        waiting_for="",
        waiting_key="",
        attempt=0,
        n_retries=0,
        n_lost=0,
        round=1,
        fence=0,
        input=prepared.input,
        item=None,
        previous=None,
        timeout_at=None,
        started_at=None,
        worker="",
        queue=row["queue"],
        gates=row["gates"],
    )


def _events(change: Change) -> list[tuple[str, str, dict[str, Any], str]]:
    change.decision.record_asked()
    drafts = change.decision.events
    lines = [
        (d.type, name_of(change.workflow, d.ref) if d.ref else "", d.payload, change.actor)
        for d in drafts
    ]
    claim = change.decision.claim
    if claim is not None and change.claim_row is not None:
        payload = {"attempt": change.claim_row.attempt + 1}
        name = name_of(change.workflow, claim)
        lines.append(("step.started", name, payload, change.actor))
        intent = change.prepared.effect if change.prepared is not None else None
        if intent is not None and intent.course is Course.CALL:
            shown = {"key": intent.key, "tool": intent.tool}
            lines.append(("effect.intended", name, shown, change.actor))
    return lines


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
