"""A person has found out what became of an effect in doubt."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from orchestrator.core import repairing
from orchestrator.core.compiled import CompiledWorkflow
from orchestrator.core.decision import EventDraft, Ref
from orchestrator.core.effects import EffectEnd, EffectStatus
from orchestrator.core.errors import NotFound, StateConflict
from orchestrator.core.outcomes import Succeeded
from orchestrator.core.repairing import Wish
from orchestrator.core.states import StepState
from orchestrator.engine.change import Change, name_of
from orchestrator.engine.effects import effect_event, effect_move
from orchestrator.engine.repair_order import Order, RepairReport, refused
from orchestrator.engine.settle import apply_change, carry_out, close_loops, decide
from orchestrator.engine.settled import Settled
from orchestrator.engine.values import Values
from orchestrator.executors.json_output import output_error
from orchestrator.models import moves, repair_rows, rows
from orchestrator.models.repair_rows import HeldEffect
from orchestrator.models.rows import RunRow, StepRow

_OPEN = (EffectStatus.INTENDED, EffectStatus.IN_DOUBT)


def settle_in_doubt(
    run: RunRow, workflow: CompiledWorkflow, values: Values, order: Order, *, preview: bool
) -> tuple[RepairReport, Settled]:
    """``applied``: the step completes with the receipt. ``not_applied``: it is READY again. Where
    the step is over already, only what is known of the effect is written."""
    effect, row = _held(run, order)
    schema = workflow.steps[row.position].config.get("output_schema")
    end = _end(order, None if effect.nested else schema)  # of a call it says nothing
    order = replace(order, step=row.key, scope=row.scope)
    settled = Settled(run=run, workflow=workflow)
    report = RepairReport(
        action=order.action,
        step=row.key,
        scope=row.scope,
        preview=preview,
        state=str(run.state),
        state_version=run.version,
        effects={"found": [], "called": [], "looked_up": [], "undone": []},
    )
    waits = row.state == StepState.WAITING
    applied = end.status is EffectStatus.APPLIED
    again = waits and (effect.nested or not applied)
    if again:
        report.reruns, report.starts = [row.key], [row.key]
    if applied:
        report.effects["found"].append(end.key)
    elif again:
        report.effects["called"].append(end.key)
    if preview:
        return report, settled
    if not waits:
        _note(run, workflow, row, effect, end, order)
    elif not again:
        settled = _complete(run, workflow, values, row, end, order)
    else:
        told = [_event(workflow, row, order), effect_event(Ref(row.position, row.index), end)]
        settled = _send_back(
            _Again(run, workflow, values, row), order, _move(end, order), _told(effect, told)
        )
    return report, settled


def _held(run: RunRow, order: Order) -> tuple[HeldEffect, StepRow]:
    key = order.details.get("effect_key")
    if not key:
        raise refused("effect_key", "name the effect")
    effect = repair_rows.find_effect(run.id, key)
    row = rows.read_step(effect.step_id) if effect is not None else None
    if effect is None or row is None or not _is_meant(row, order):
        raise NotFound(f"the run holds no effect {key!r}")
    if effect.status not in _OPEN:
        raise StateConflict(
            f"effect {key} is {effect.status}: only one that is in doubt can be settled",
            state=effect.status,
            code="effect_settled",
        )
    if row.state in (StepState.RUNNING, StepState.READY, StepState.RETRYING):
        raise StateConflict(
            f"step {row.key}{row.scope} is {row.state}: it will find out by itself, or ask",
            state=row.state,
            code="still_under_way",
        )
    return effect, row


def _is_meant(row: StepRow, order: Order) -> bool:
    """Whether it is the step, and the item, that the order names, if it names one."""
    return order.step in ("", row.key) and order.scope in ("", row.scope)


def _end(order: Order, schema: Any) -> EffectEnd:
    key, reason = str(order.details["effect_key"]), f"{order.actor}: {order.reason}"
    match order.details.get("outcome"):
        case "not_applied":
            return EffectEnd(key=key, status=EffectStatus.NOT_APPLIED, reason=reason)
        case "applied":
            output = _output(order, schema)
            return EffectEnd(key=key, status=EffectStatus.APPLIED, response=output, reason=reason)
        case _:
            raise refused("outcome", "write applied or not_applied")


def _output(order: Order, schema: Any) -> Any:
    """What the step, or the call, answers: as given, else the provider's reference."""
    output, reference = order.details.get("output"), order.details.get("external_ref")
    if output is None and not reference:
        raise refused("external_ref", "give the provider's reference, or the output of the step")
    value = output if output is not None else {"external_ref": reference}
    failure = output_error(value, schema)
    if failure is not None:
        raise refused("output", failure.message)
    return value


def _move(end: EffectEnd, order: Order) -> dict[str, Any]:
    move = effect_move(end)
    if end.status is EffectStatus.APPLIED and order.details.get("external_ref"):
        move["external_ref"] = order.details["external_ref"]
    return move


def _event(workflow: CompiledWorkflow, row: StepRow, order: Order) -> EventDraft:
    return order.event(workflow, reruns=[], index=row.index)


def _complete(
    run: RunRow,
    workflow: CompiledWorkflow,
    values: Values,
    row: StepRow,
    end: EffectEnd,
    order: Order,
) -> Settled:
    outcome = Succeeded(output=end.response)
    change = decide(run, workflow, values, row, outcome, effect=end, actor=order.actor)
    if change.subject is not None:
        change.subject["effect"] = _move(end, order)
    change.decision.events.insert(0, _event(workflow, row, order))
    return carry_out(change, values, row, outcome)


def _told(effect: HeldEffect, told: list[EventDraft]) -> list[EventDraft]:
    """The lines of history; of a call that the body made they say so: the body looks again."""
    if effect.nested:
        told[0].payload |= {"nested": True}
        told[1].type = told[1].type.replace("effect.", "call.")
    return told


class _Again(NamedTuple):
    """A step that waits, and is to run again."""

    run: RunRow
    workflow: CompiledWorkflow
    values: Values
    row: StepRow


def _send_back(step: _Again, order: Order, move: dict[str, Any], told: list[EventDraft]) -> Settled:
    run, workflow, values, row = step
    ref = Ref(row.position, row.index)
    stored = repairing.stored_state((), {})
    decision = repairing.send_back(
        Wish(workflow=workflow, snapshot=run.snapshot, stored=stored, conditions=values), ref
    )
    decision.events[:0] = told
    change = Change(run=run, workflow=workflow, decision=decision, actor=order.actor)
    subject = decision.subject
    assert subject is not None
    change.subject = {
        "id": str(row.id),
        "from": row.state,
        "fence": row.fence,
        "to": str(subject.to),
        "queued": ref in decision.dispatch,
        "n_retries": 0,
        "n_lost": 0,
        "cost": 0,
        "effect": move,
    }
    settled = Settled(run=run, workflow=workflow)
    apply_change(change, values, settled)
    close_loops(change, values, settled)
    return settled


def _note(
    run: RunRow,
    workflow: CompiledWorkflow,
    row: StepRow,
    effect: HeldEffect,
    end: EffectEnd,
    order: Order,
) -> None:
    """The step is over: the receipt is for whoever repairs it next."""
    repair_rows.settle_effect(effect.id, _move(end, order))
    draft = _event(workflow, row, order)
    name = name_of(workflow, Ref(row.position, row.index))
    moves.append_event(run.id, draft.type, {**draft.payload, "step": name}, order.actor)
    run.version += 1
