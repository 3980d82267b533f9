"""A decision on its way into the rows, and the rows and lines of history that it asks for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from orchestrator.clock import new_id
from orchestrator.core.compiled import CompiledWorkflow, StepPlan
from orchestrator.core.decision import Decision, Ref
from orchestrator.core.effects import Course
from orchestrator.core.states import StepState
from orchestrator.engine.work import Prepared
from orchestrator.models.rows import RunRow, StepRow


@dataclass(slots=True)
class Claimed:
    """A step that is claimed in company: its row, where it has one already, and what was worked
    out for it."""

    ref: Ref
    row: StepRow | None
    prepared: Prepared


@dataclass(slots=True, kw_only=True)
class Change:
    """A decision on its way into the rows.

    ``subject``: the step's move as documented in sql/apply.sql (filled by the caller, who knows
    its row). ``claim_row`` is the claimed step's row when it has one already, ``prepared`` what
    was worked out for it. ``actor`` signs the events. ``child_id``: the child run that the step
    starts. ``passed``: the limited gate that lets the claimed step through. ``settled``: moves of
    several steps that one worker settles at once, instead of ``subject`` (sql/company.sql);
    ``company``: what is claimed beside ``claim_row``.
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
    settled: list[dict[str, Any]] = field(default_factory=list)
    company: list[Claimed] = field(default_factory=list)


def scope_of(index: int | None) -> str:
    """An item's scope, ``[index]``; empty for a plain step."""
    return "" if index is None else f"[{index}]"


def name_of(workflow: CompiledWorkflow, ref: Ref) -> str:
    """How the history and messages call it: the key with its scope."""
    return workflow.steps[ref.position].key + scope_of(ref.item)


def new_rows(change: Change) -> list[dict[str, Any]]:
    """Rows of plain steps that became READY (the one claimed at once is written by the claim)."""
    decision = change.decision
    on_the_way = {*decision.dispatch, *decision.carried}
    claimed = {decision.claim, *decision.company}
    return [
        row_of(change, ref) | {"queued": ref in on_the_way}
        for ref in decision.ready
        if ref.item is None and ref not in claimed
    ]


def row_of(change: Change, ref: Ref) -> dict[str, Any]:
    """What `orchestrator_insert_ready` and a claim take of a new row."""
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


def claim_of(change: Change) -> dict[str, Any] | None:
    """What the claim takes, as sql/apply.sql says; sets ``claim_row`` of a new row."""
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
    change.claim_row = fresh_row(change, ref, prepared)
    return claim | row_of(change, ref) | {"id": str(change.claim_row.id), "new": True}


def company_of(change: Change) -> list[dict[str, Any]]:
    """What is claimed with it, as sql/company.sql says; sets the rows of new steps."""
    company = []
    for one in change.company:
        step = change.workflow.steps[one.ref.position]
        claim = {"timeout_s": step.timeout_s, "input": one.prepared.input}
        if one.row is not None:
            company.append(claim | {"id": str(one.row.id), "fence": one.row.fence})
            continue
        one.row = fresh_row(change, one.ref, one.prepared)
        new = row_of(change, one.ref) | {"id": str(one.row.id), "new": True}
        company.append(claim | new)
    return company


def fresh_row(change: Change, ref: Ref, prepared: Prepared) -> StepRow:
    """The row as the claim is about to write it, before its first attempt is counted."""
    step = change.workflow.steps[ref.position]
    return StepRow(
        id=new_id(),
        key=step.key,
        scope=scope_of(ref.item),
        position=ref.position,
        index=ref.item,
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
        queue=step.queue,
        gates=own_gates(step, ref),
    )


def events_of(change: Change) -> list[tuple[str, str, dict[str, Any], str]]:
    """The lines of history, in order; call once ``claim_row`` is known."""
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
    for one in change.company:
        payload = {"attempt": 1 if one.row is None else one.row.attempt + 1}
        lines.append(("step.started", name_of(change.workflow, one.ref), payload, change.actor))
    return lines
