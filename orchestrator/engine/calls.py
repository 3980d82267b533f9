"""A body calls another tool through its context, each call an effect of its own.

Intent, call and receipt have their own commits, so that an attempt that follows a dead one finds
what was done and calls only what is missing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from orchestrator.core.effects import Course, EffectEnd, EffectPlan, key_problem
from orchestrator.core.errors import ErrorClass, StepError
from orchestrator.core.outcomes import Failed, Outcome
from orchestrator.crash import Unit
from orchestrator.engine import effects
from orchestrator.executors.base import StepContext, ToolRequest
from orchestrator.executors.registry import get_executor
from orchestrator.models import call_rows
from orchestrator.models.call_rows import Holder
from orchestrator.models.moves import EffectMoved

MAX_DEPTH = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who calls: the attempt, its step's name, and how deep the call lies."""

    holder: Holder
    name: str
    depth: int = 0


@dataclass(frozen=True, slots=True)
class _Act:
    """What ``engine.effects`` asks of a step: its type, and its block of the document."""

    type: str
    config: dict[str, Any]
    must_know: bool = True  # the body may give up at any call: then nobody would look any more


def call_tool(caller: Caller, context: StepContext, request: ToolRequest) -> Outcome:
    """Call the tool, or answer with the receipt that is there. ``Waiting`` for review when nobody
    can tell what became of an earlier call. Raises StaleFence once the step was taken away."""
    refusal = _refusal(caller, context, request)
    if refusal is not None:
        return refusal
    effect = {} if request.effect_key is None else {"effect": {"on_doubt": request.on_doubt}}
    act = _Act("tool", {"type": "tool", "tool": request.tool, "input": request.input, **effect})
    deeper = replace(caller, depth=caller.depth + 1)
    inner: StepContext = replace(
        context,
        config=act.config,
        input=request.input,
        idempotency_key=request.effect_key,
        call_tool=lambda asked: call_tool(deeper, inner, asked),
    )
    if request.effect_key is None:
        return get_executor("tool").execute(inner)
    plan = _intended(caller, context, act, request)
    answered = effects.apply_effect(plan, act, inner, lambda: get_executor("tool").execute(inner))
    if answered.effect is not None and not answered.effect.already:
        _record(caller, answered.effect)
    return answered.outcome


def _refusal(caller: Caller, context: StepContext, request: ToolRequest) -> Failed | None:
    tool, effect_key = request.tool, request.effect_key
    if caller.depth >= MAX_DEPTH:
        return _permanent(f"tools call one another more than {MAX_DEPTH} deep, at {tool}")
    problem = None if effect_key is None else key_problem(effect_key)
    if problem is not None:
        return _permanent(f"the call of {tool}: {problem}")
    if context.config.get("type") == "agent" and tool not in (context.config.get("tools") or ()):
        return _permanent(f"this agent may not call {tool}: its step does not list it in tools")
    return None


def _permanent(message: str) -> Failed:
    details = {"not_applied": True}
    return Failed(
        error=StepError(error_class=ErrorClass.PERMANENT, message=message, details=details)
    )


def _intended(
    caller: Caller, context: StepContext, act: _Act, request: ToolRequest, *, tries: int = 3
) -> EffectPlan:
    """What to do about the call, its intent committed where it is to be made."""
    plan = effects.plan_effect(
        tenant=context.tenant,
        step=act,
        key=str(request.effect_key),
        data=request.input,
        step_id=caller.holder.step_id,
    )
    if plan.course not in (Course.CALL, Course.DOUBT):
        return plan
    try:
        _intend(caller, plan)
    except EffectMoved:  # somebody else had the key in the meantime: look again
        if tries <= 1:
            raise
        return _intended(caller, context, act, request, tries=tries - 1)
    return plan


def _intend(caller: Caller, plan: EffectPlan) -> None:
    with Unit("call_intent"):
        call_rows.intend(
            caller.holder,
            effect=plan.intent,
            shown={
                "step": caller.name,
                "key": plan.key,
                "tool": plan.tool,
                "again": plan.course is Course.DOUBT,
            },
        )


def _record(caller: Caller, end: EffectEnd) -> None:
    kind, payload = effects.effect_line(end)
    with Unit("call_receipt"):
        call_rows.settle(
            caller.holder,
            move=effects.effect_move(end),
            line=(kind.replace("effect.", "call."), {"step": caller.name, **payload}),
        )
