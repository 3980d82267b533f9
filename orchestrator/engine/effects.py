"""An attempt's effect: found, called once, looked up, or given to a person. Never a blind retry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from orchestrator.authoring import registry
from orchestrator.conf import engine_settings
from orchestrator.core.decision import EventDraft, Ref
from orchestrator.core.effects import (
    Course,
    EffectEnd,
    EffectPlan,
    EffectStatus,
    course,
    external_ref,
    request_hash,
    response_hash,
    shown_reason,
)
from orchestrator.core.errors import ErrorClass, StepError
from orchestrator.core.outcomes import Failed, Outcome, Succeeded, Waiting
from orchestrator.crash import crash_point
from orchestrator.executors.base import StepContext
from orchestrator.executors.effects import Applied, NotApplied, Unknown, look_up_effect
from orchestrator.models import effect_rows

_BUSY_RETRY_S = 1.0
_EVENTS = {
    EffectStatus.APPLIED: "effect.receipt",
    EffectStatus.IN_DOUBT: "effect.in_doubt",
    EffectStatus.NOT_APPLIED: "effect.not_applied",
    EffectStatus.GIVEN_UP: "effect.given_up",
}


class Acting(Protocol):
    """What acts: a step of the workflow, or one call that a body makes."""

    @property
    def type(self) -> str:
        """The step type."""
        ...

    @property
    def config(self) -> Mapping[str, Any]:
        """The block of the document; ``tool`` and ``effect`` are looked at."""
        ...

    @property
    def must_know(self) -> bool:
        """Whether its effect is looked up at once where it can be, before anything is given up."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What an attempt answered, and what the settle writes about its effect (None: nothing)."""

    outcome: Outcome
    effect: EffectEnd | None = None


def plan_effect(
    *, tenant: str, step: Acting, key: str, data: Any, step_id: UUID | None
) -> EffectPlan:
    """What the attempt will do about its effect, from what is stored under the key; reads only."""
    tool = str(step.config.get("tool", step.type))
    request = request_hash(tool, data)
    stored = effect_rows.find_effect(tenant, key, step_id=step_id)
    return EffectPlan(
        key=key,
        tool=tool,
        request_hash=request,
        course=course(stored, request),
        response=stored.response if stored is not None else None,
        holder=stored.holder if stored is not None else "",
        seen=stored.seen if stored is not None else None,
    )


def apply_effect(
    plan: EffectPlan, step: Acting, context: StepContext, call: Callable[[], Outcome]
) -> Answered:
    """Bring the effect about, once. ``call`` runs the step's body; the intent is committed."""
    known = without_call(plan)
    if known is not None:
        return known
    match plan.course:
        case Course.DOUBT:
            return _settle_doubt(plan, step, context, call)
        case Course.CALL if engine_settings().after_restore:  # done after the backup, perhaps
            return _settle_doubt(plan, step, context, call)
        case _:
            return _conclude(plan, step, context, call())


def without_call(plan: EffectPlan) -> Answered | None:
    """The answer where nobody has to be called: the receipt is there, or the key is refused."""
    match plan.course:
        case Course.FOUND:
            found = EffectEnd(key=plan.key, status=EffectStatus.APPLIED, already=True)
            return Answered(outcome=Succeeded(output=plan.response), effect=found)
        case Course.CLASH:
            return Answered(outcome=_clash(plan))
        case Course.UNDONE:
            return Answered(outcome=_undone(plan))
        case Course.BUSY:
            return Answered(outcome=_busy(plan))
        case _:
            return None


def _clash(plan: EffectPlan) -> Failed:
    words = (
        f"effect key {plan.key!r} stands for another request already ({plan.holder}): one key is"
        " one business action, so put what differs into the key"
    )
    details = {"code": "effect_key_reused", "held_by": plan.holder, "not_applied": True}
    return Failed(error=StepError(error_class=ErrorClass.PERMANENT, message=words, details=details))


def _undone(plan: EffectPlan) -> Failed:
    words = (
        f"effect {plan.key!r} was done and has been undone since ({plan.holder}): a key is one"
        " business action for ever, so put what is new about this one into the key"
    )
    details = {"code": "effect_undone", "held_by": plan.holder, "not_applied": True}
    return Failed(error=StepError(error_class=ErrorClass.PERMANENT, message=words, details=details))


def _busy(plan: EffectPlan) -> Failed:
    words = f"effect {plan.key!r} is under way elsewhere ({plan.holder})"
    error = StepError(
        error_class=ErrorClass.TRANSIENT, message=words, details={"not_applied": True}
    )
    return Failed(error=error, retry_after=_BUSY_RETRY_S)


def _settle_doubt(
    plan: EffectPlan, step: Acting, context: StepContext, call: Callable[[], Outcome]
) -> Answered:
    """An earlier attempt may have called: look it up before anything else."""
    match _look_up(context):
        case Applied(output=output):
            return _applied(plan, output)
        case NotApplied():
            return _conclude(plan, step, context, call())
        case Unknown(reason=reason):
            if is_idempotent(step) or on_doubt(step) == "resend":
                return _conclude(plan, step, context, call(), unsettled=True)
            return by_rule(plan.key, step, reason)


def _look_up(context: StepContext) -> Applied | NotApplied | Unknown:
    crash_point("lookup:before")
    found = look_up_effect(context)
    crash_point("lookup:after")
    return found


def _conclude(
    plan: EffectPlan,
    step: Acting,
    context: StepContext,
    outcome: Outcome,
    *,
    unsettled: bool = False,
) -> Answered:
    """What the call's outcome says about the effect. ``unsettled``: nobody could tell what became
    of an earlier call, so that this one was refused says nothing about that one."""
    if isinstance(outcome, Succeeded):
        return _applied(plan, outcome.output, outcome)
    if not isinstance(outcome, Failed):
        return Answered(outcome=outcome)
    if not unsettled and (outcome.error.details or {}).get("not_applied"):
        return Answered(
            outcome=outcome, effect=EffectEnd(key=plan.key, status=EffectStatus.NOT_APPLIED)
        )
    reason = outcome.error.message
    known = _looked_up(plan, step, context, outcome)
    if known is not None:
        return known
    if not may_resend(step):
        return by_rule(plan.key, step, reason)
    doubt = EffectEnd(key=plan.key, status=EffectStatus.IN_DOUBT, reason=reason)
    return Answered(outcome=outcome, effect=doubt)


def _looked_up(
    plan: EffectPlan, step: Acting, context: StepContext, outcome: Failed
) -> Answered | None:
    """What the tool finds out about a call that failed; None: nobody can tell, or it can wait for
    the next attempt."""
    if may_resend(step) and not (step.must_know and can_look_up(step)):
        return None
    match _look_up(context):
        case Applied(output=output):
            return _applied(plan, output)
        case NotApplied():
            known = EffectEnd(key=plan.key, status=EffectStatus.NOT_APPLIED)
            return Answered(outcome=outcome, effect=known)
        case Unknown():
            return None


def may_resend(step: Acting) -> bool:
    """Whether the same key may be sent again while nobody can tell."""
    return is_idempotent(step) or on_doubt(step) == "resend"


def _applied(plan: EffectPlan, output: Any, outcome: Succeeded | None = None) -> Answered:
    receipt = EffectEnd(key=plan.key, status=EffectStatus.APPLIED, response=output)
    return Answered(outcome=outcome or Succeeded(output=output), effect=receipt)


def by_rule(key: str, step: Acting, reason: str) -> Answered:
    """Nobody can tell what became of the effect: a person decides, or the document says to go on
    without."""
    if on_doubt(step) == "skip":
        given_up = EffectEnd(key=key, status=EffectStatus.GIVEN_UP, reason=reason)
        return Answered(outcome=Succeeded(output=None), effect=given_up)
    doubt = EffectEnd(key=key, status=EffectStatus.IN_DOUBT, reason=reason)
    why = f"effect {key} is in doubt: {reason}"
    return Answered(outcome=Waiting(kind="review", why=why), effect=doubt)


def after_loss(step: Acting, step_id: UUID, failure: Failed) -> Answered:
    """The attempt ended without a word (its worker was lost, its time is over); what that means
    for an intent that it held."""
    key = effect_rows.held_key(step_id)
    return Answered(outcome=failure) if key is None else of_lost(step, key, failure)


def of_lost(step: Acting, key: str, failure: Failed) -> Answered:
    """An attempt that ended without a word held an intent: a later attempt looks it up, or a
    person does."""
    reason = failure.error.message
    if is_idempotent(step) or can_look_up(step) or on_doubt(step) == "resend":
        doubt = EffectEnd(key=key, status=EffectStatus.IN_DOUBT, reason=reason)
        return Answered(outcome=failure, effect=doubt)
    return by_rule(key, step, reason)


def is_idempotent(step: Acting) -> bool:
    """Whether the tool may be called again with the same key."""
    name = str(step.config.get("tool", ""))
    return name in registry and registry.get(name).idempotent


def can_look_up(step: Acting) -> bool:
    """Whether the tool can tell what became of its effect."""
    name = str(step.config.get("tool", ""))
    return name in registry and registry.get(name).reconciles


def on_doubt(step: Acting) -> str:
    """The document's rule for an effect that nobody can tell: review, resend or skip."""
    return str(step.config.get("effect", {}).get("on_doubt", "review"))


def effect_event(ref: Ref, end: EffectEnd) -> EventDraft:
    """The line of history about the effect's end."""
    kind, payload = effect_line(end)
    return EventDraft(kind, ref, payload)


def effect_line(end: EffectEnd) -> tuple[str, dict[str, Any]]:
    """Type and payload of that line."""
    payload: dict[str, Any] = {"key": end.key}
    if end.already:
        return "effect.found", payload
    if end.status is EffectStatus.APPLIED:
        payload["external_ref"] = external_ref(end.response)
        payload["response_hash"] = response_hash(end.response)
    if end.reason:
        payload["reason"] = shown_reason(end.reason)
    return _EVENTS[end.status], payload


def effect_move(end: EffectEnd) -> dict[str, Any]:
    """The effect's part of the step's move, as documented in sql/apply.sql."""
    move: dict[str, Any] = {
        "key": end.key,
        "status": str(end.status),
        "reason": shown_reason(end.reason),
    }
    if end.status is EffectStatus.APPLIED:
        move |= {
            "response": end.response,
            "response_hash": response_hash(end.response),
            "external_ref": external_ref(end.response),
        }
    return move
