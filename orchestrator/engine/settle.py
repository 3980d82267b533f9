"""An answer becomes a decision and rows: by a worker, a timer, a signal, a person, a child."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from orchestrator.clock import jitter, new_id
from orchestrator.core import admission, planning
from orchestrator.core.admission import Lane
from orchestrator.core.compiled import CompiledWorkflow
from orchestrator.core.decision import Decision, EventDraft, Ref, Subject
from orchestrator.core.effects import EffectEnd, EffectStatus, given_up_warning
from orchestrator.core.errors import InvariantBroken
from orchestrator.core.outcomes import (
    EndRun,
    Failed,
    Outcome,
    Routed,
    StartChild,
    Succeeded,
    UndoChildren,
    Waiting,
)
from orchestrator.core.settling import Expanded, Fact, NotBegun
from orchestrator.core.states import StepState
from orchestrator.engine import consequences, writing
from orchestrator.engine.change import Change, Claimed, scope_of
from orchestrator.engine.effects import effect_event, effect_move
from orchestrator.engine.settled import Settled
from orchestrator.engine.values import Values
from orchestrator.engine.work import prepare, usage_of
from orchestrator.models import loops, rows
from orchestrator.models.rows import RunRow, StepRow

_TRIED_AGAIN = frozenset({StepState.RETRYING, StepState.READY})


def output_of(outcome: Outcome | Expanded | NotBegun) -> Any:
    """What a completed step's output is."""
    match outcome:
        case Succeeded(output=output) | EndRun(output=output):
            return output
        case Routed(routes=routes, why=why):
            return {"routes": list(routes), "why": why}
        case _:
            return None


def decide(  # noqa: PLR0913 - the run as held, the fact, who asks
    run: RunRow,
    workflow: CompiledWorkflow,
    values: Values,
    row: StepRow,
    outcome: Outcome | Expanded | NotBegun,
    *,
    lane: Lane | None = None,
    effect: EffectEnd | None = None,
    lost: bool = False,
    actor: str = "",
) -> Change:
    """Decide what the answer leads to; nothing is written. ``row`` is the step as expected.

    ``lost``: the answer is that its worker was lost.
    """
    ref = Ref(row.position, row.index)
    if ref.item is None:
        values.learn(ref.position, output_of(outcome))
    values.focus(row)
    fact = Fact(
        ref=ref,
        outcome=outcome,
        waited_for=row.waiting_for if row.state == StepState.WAITING else "",
        n_retries=row.n_retries,
        n_lost=row.n_lost + lost,
        round_number=row.round,
        jitter=jitter(),
        in_doubt=_doubt(outcome, effect),
        warning=_warning(workflow, row, effect),
    )
    decision = planning.settle(workflow, run.snapshot, fact, values, lane=lane)
    outcome = _parked(decision, outcome, fact)
    _forget_failure(values, decision)
    if fact.waited_for == "person" and not isinstance(outcome, Waiting):
        decision.events.insert(0, EventDraft("gate.decided", ref, _verdict_of(outcome)))
    change = Change(run=run, workflow=workflow, decision=decision, actor=actor)
    change.subject = _subject_move(row, decision, outcome, lost=lost)
    if effect is not None:
        if not effect.already:
            change.subject["effect"] = effect_move(effect)
        decision.events.insert(0, effect_event(ref, effect))
    if change.subject["to"] == StepState.WAITING:
        _note_wait(change, ref, outcome)
    if isinstance(outcome, NotBegun) and change.subject["to"] == StepState.READY:
        change.settled, change.subject = [change.subject], None
    prepare_claim(change, values, row)
    return change


def _doubt(outcome: Outcome | Expanded | NotBegun, effect: EffectEnd | None) -> str:
    failed_in_doubt = effect is not None and effect.status is EffectStatus.IN_DOUBT
    return effect.key if effect and failed_in_doubt and isinstance(outcome, Failed) else ""


def _parked(
    decision: Decision, outcome: Outcome | Expanded | NotBegun, fact: Fact
) -> Outcome | Expanded | NotBegun:
    """A failure that leaves what has to be known in doubt waits for a person instead."""
    subject = decision.subject
    waits = subject is not None and subject.to is StepState.WAITING
    if not (waits and fact.in_doubt and isinstance(outcome, Failed)):
        return outcome
    why = f"effect {fact.in_doubt} is in doubt: {outcome.error.message}"
    return Waiting(kind="review", why=why)


def _warning(
    workflow: CompiledWorkflow, row: StepRow, effect: EffectEnd | None
) -> dict[str, Any] | None:
    if effect is None or effect.status is not EffectStatus.GIVEN_UP:
        return None
    return given_up_warning(workflow.steps[row.position].key, effect.key, effect.reason)


def _forget_failure(values: Values, decision: Decision) -> None:
    """Only a completed step has an output."""
    subject = decision.subject
    if subject is not None and subject.ref.item is None and subject.to is not StepState.COMPLETED:
        values.outputs.pop(subject.ref.position, None)


def _subject_move(
    row: StepRow, decision: Decision, outcome: Outcome | Expanded | NotBegun, *, lost: bool
) -> dict[str, Any]:
    subject = decision.subject
    if subject is None:
        raise InvariantBroken(f"settling {row.key} moved nothing")
    move: dict[str, Any] = {
        "id": str(row.id),
        "from": str(row.state),
        "fence": row.fence,
        "to": str(subject.to),
        **usage_of(outcome),
    }
    if subject.to is StepState.COMPLETED:
        move["output"] = output_of(outcome)
        move["error"] = None
    if subject.error is not None:
        move["error"] = subject.error
    if subject.loop_total is not None:
        move["items_total"] = subject.loop_total
    _retry_counters(move, row, subject, outcome, lost=lost)
    if subject.to is StepState.WAITING:
        move |= _wait_fields(outcome, row)
    if subject.to is StepState.READY:
        move["queued"] = subject.ref in decision.dispatch or subject.ref in decision.carried
        move["bump"] = lost
    return move


def _wait_fields(outcome: Outcome | Expanded | NotBegun, row: StepRow) -> dict[str, Any]:
    match outcome:
        case Waiting(kind=kind, key=key, why=why):
            return {"waiting_for": kind, "waiting_key": key or row.waiting_key, "why": why}
        case StartChild(name=name):
            return {"waiting_for": "child", "why": f"child workflow {name}"}
        case UndoChildren(name=name):
            return {"waiting_for": "child", "why": f"child workflow {name} is undone"}
        case _:
            return {"waiting_for": "timer", "why": "pause before the next round"}


def _retry_counters(
    move: dict[str, Any],
    row: StepRow,
    subject: Subject,
    outcome: Outcome | Expanded | NotBegun,
    *,
    lost: bool,
) -> None:
    if subject.again:
        move |= {"previous": output_of(outcome), "round": row.round + 1, "n_retries": 0}
    elif lost:
        move["n_lost"] = row.n_lost + 1
    elif isinstance(outcome, Failed) and outcome.uses_a_retry and subject.to in _TRIED_AGAIN:
        move["n_retries"] = row.n_retries + 1


def _verdict_of(outcome: Outcome | Expanded | NotBegun) -> dict[str, Any]:
    """Who decided what, as the history shows it."""
    match outcome:
        case Succeeded(output=dict(words)) | EndRun(output=dict(words)):
            pass
        case Failed(error=error):
            words = error.details or {}
        case _:
            words = {}
    return {name: words[name] for name in ("decision", "by") if name in words}


def _note_wait(change: Change, ref: Ref, outcome: Outcome | Expanded | NotBegun) -> None:
    events = change.decision.events
    if isinstance(outcome, StartChild):
        change.child_id = new_id()
        named = {"workflow": outcome.name, "child": str(change.child_id)}
        events.append(EventDraft("child.started", ref, named))
    if not isinstance(outcome, Waiting):
        return
    if outcome.kind == "person":
        events.append(EventDraft("gate.opened", ref, {"why": outcome.why}))
    if outcome.due is not None:
        due = outcome.due
        shown: dict[str, Any] = (
            {"seconds": due.total_seconds()}
            if isinstance(due, timedelta)
            else {"at": due.isoformat()}
        )
        events.append(EventDraft("timer.set", ref, {"kind": "wait", **shown}))


def prepare_claim(change: Change, values: Values, row: StepRow | None) -> None:
    """Inputs are worked out before the claim, over the state that is about to be written."""
    ref = change.decision.claim
    if ref is None:
        return
    values.see(change.decision.snapshot)
    step = change.workflow.steps[ref.position]
    subject = change.decision.subject
    if subject is not None and row is not None and ref == subject.ref:
        claim_row: StepRow | None = _row_after(row, change.subject or {})
    elif ref in change.decision.ready and ref.item is None:
        claim_row = None
    else:
        claim_row = rows.read_item(change.run.id, step.key, scope_of(ref.item))
        if claim_row is not None and ref.item is None and ref.position in change.decision.again:
            claim_row = replace(claim_row, n_retries=0, n_lost=0, round=1, previous=None)
    change.claim_row = claim_row
    change.prepared = prepare(values, step, claim_row)
    if change.decision.company:
        _prepare_company(change, values)


def _prepare_company(change: Change, values: Values) -> None:
    """The same for what is claimed with it. Whatever was tried before is claimed by itself, so that
    it is known which body a lost worker was at; and nothing is claimed in the company of such."""
    decision, steps = change.decision, change.workflow.steps
    fresh = set(decision.ready)
    known = [ref for ref in decision.company if ref.item is not None or ref not in fresh]
    names = [(steps[ref.position].key, scope_of(ref.item)) for ref in known]
    found = {
        Ref(row.position, row.index): row
        for row in (rows.read_items(change.run.id, names) if names else ())
    }
    apart = [ref for ref in known if ref not in found or found[ref].attempt]
    if change.claim_row is not None and change.claim_row.attempt:
        apart = list(decision.company)
    admission.disband(decision, apart)
    change.company = [
        Claimed(ref, found.get(ref), prepare(values, steps[ref.position], found.get(ref)))
        for ref in decision.company
    ]


def _row_after(row: StepRow, move: dict[str, Any]) -> StepRow:
    """The subject's own row as its move leaves it, when the lane takes it again at once.

    A copy: the decision may have to be made anew from the row as it was.
    """
    return replace(
        row,
        round=move.get("round", row.round),
        previous=move.get("previous", row.previous),
        n_retries=move.get("n_retries", row.n_retries),
        n_lost=move.get("n_lost", row.n_lost),
        fence=row.fence + bool(move.get("bump")),
    )


def carry_out(
    change: Change,
    values: Values,
    row: StepRow,
    outcome: Outcome | Expanded | NotBegun,
    *,
    lane: Lane | None = None,
    lost: bool = False,
) -> Settled:
    """Write the change and what belongs beside it, inside the caller's transaction (run locked).

    Closes the loops that this made whole, each by a decision of its own.
    """
    run, workflow = change.run, change.workflow
    settled = Settled(run=run, workflow=workflow)
    apply_change(change, values, settled)
    consequences.write_consequences(change, row, outcome, settled, lost=lost)
    close_loops(change, values, settled, lane=lane)
    return settled


def close_loops(
    change: Change, values: Values, settled: Settled, *, lane: Lane | None = None
) -> None:
    """Each for_each that the change made whole completes or gives up, by a decision of its own.

    The first that ends the run takes the others' decisions away with it.
    """
    run, workflow = change.run, change.workflow
    for position in change.decision.loops_done:
        if run.ended or position not in run.snapshot.loops:
            return
        if workflow.steps[position].undoes is None:
            loops.set_loop_output(run.id, workflow.steps[position].key)
        follow = _close_loop(run, workflow, values, position, lane=lane)
        apply_change(follow, values, settled)


def apply_change(change: Change, values: Values, settled: Settled) -> None:
    """Write one change and note what follows from it; call inside a transaction."""
    writing.release(change)
    at = writing.write(change, values)
    writing.write_beside(change, values)
    decision = change.decision
    settled.dispatch += decision.dispatch
    settled.posted += change.posted
    if decision.claim is not None:
        settled.claim, settled.claim_row = decision.claim, change.claim_row
        settled.prepared, settled.at = change.prepared, at
        settled.asked_at, settled.company = change.asked_at, change.company


def _close_loop(
    run: RunRow, workflow: CompiledWorkflow, values: Values, position: int, *, lane: Lane | None
) -> Change:
    """The for_each whose last item has just been written completes or gives up."""
    step = workflow.steps[position]
    row = rows.read_item(run.id, step.key, "")
    if row is None:
        raise InvariantBroken(f"for_each {step.key} of run {run.id} has no row")
    if step.undoes is None:
        values.learn(position, rows.item_outputs(run.id, step.key))
    decision = planning.close_loop(workflow, run.snapshot, position, values, lane=lane)
    change = Change(run=run, workflow=workflow, decision=decision)
    subject = decision.subject
    if subject is None:
        raise InvariantBroken(f"for_each {step.key} closed without a move")
    change.subject = {
        "id": str(row.id),
        "from": str(row.state),
        "fence": row.fence,
        "to": str(subject.to),
        "cost": 0,
        "error": subject.error,
    }
    _forget_failure(values, decision)
    prepare_claim(change, values, row)
    return change
