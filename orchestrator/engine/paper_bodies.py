"""What a body answers on paper: as given, as worked out, as recorded, else as assumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any
from uuid import UUID

from orchestrator.adapters.llm.smallest import smallest_instance
from orchestrator.authoring import registry
from orchestrator.core.asked_for import output_paths, stand_in
from orchestrator.core.compiled import CompiledWorkflow, StepPlan
from orchestrator.core.errors import ConditionError, ErrorClass, StepError
from orchestrator.core.outcomes import Failed, Outcome, Routed, Succeeded
from orchestrator.core.simulation_answers import Given
from orchestrator.core.states import StepState
from orchestrator.engine.work import checked
from orchestrator.executors.base import Rehearses, StepContext, ToolRequest
from orchestrator.executors.registry import get_executor

_COMPUTED = frozenset({"wait", "sub_workflow", "undo_child"})
_HAS_OUTPUT = frozenset({StepState.COMPLETED, StepState.COMPENSATING, StepState.COMPENSATED})
_GAVE_UP = frozenset({StepState.FAILED, StepState.TIMED_OUT, StepState.SKIPPED})
"""An optional step that failed counts as skipped, and keeps its error."""


class Source(StrEnum):
    """Where an answer comes from."""

    GIVEN = "given"
    COMPUTED = "computed"  # worked out here, as a worker would
    RECORDED = "recorded"
    RECEIPT = "receipt"  # the effect has been made before: nobody is called
    CHILD = "child"  # a run of the child workflow on paper
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A step, or an item, as a stored run has it; ``child`` is the last run that it started."""

    state: str
    output: Any
    error: Mapping[str, Any] | None
    child: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """An answer, where it comes from, and (of what asks people) what would be shown to them.
    ``in_doubt`` is the key of the effect that the failure leaves so, ``warning`` what the run
    shows of one that was given up."""

    outcome: Outcome
    source: Source
    shown: Mapping[str, Any] = field(default_factory=dict)
    in_doubt: str = ""
    warning: dict[str, Any] | None = None


def say(
    step: StepPlan,
    context: StepContext,
    given: Given | None,
    recorded: Recorded | None,
    workflow: CompiledWorkflow,
) -> Said:
    """The answer of one attempt. Nothing is stored, and nobody is called."""
    worked_out = None if _ends_body(given) else _worked_out(step, context)
    if worked_out is not None:
        return worked_out
    if given is not None and _ends_body(given):
        return Said(outcome=checked(_as_given(given), step), source=Source.GIVEN)
    outcome = None if recorded is None else _as_recorded(step, recorded)
    if outcome is not None:
        return Said(outcome=outcome, source=Source.RECORDED)
    return Said(outcome=_assumed(step, workflow), source=Source.ASSUMED)


def _ends_body(given: Given | None) -> bool:
    """Whether the given answer is one of a body; else it ends the wait that the body begins."""
    if given is None:
        return False
    return given.says("output") or given.error is not None or given.routes is not None


def _worked_out(step: StepPlan, context: StepContext) -> Said | None:
    """What the executor itself answers, where that touches nothing; None: it would act."""
    try:
        executor = get_executor(step.type)
        if _is_pure(step):
            outcome = checked(executor.execute(replace(context, call_tool=_refuse)), step)
            return Said(outcome=outcome, source=Source.COMPUTED)
        if isinstance(executor, Rehearses):
            found = executor.rehearse(context)
            return Said(outcome=found.outcome, source=Source.COMPUTED, shown=found.shown)
    except ConditionError as error:
        shape = StepError(error_class=ErrorClass.CONDITION_ERROR, message=str(error))
        return Said(outcome=Failed(error=shape), source=Source.COMPUTED)
    return None


def _is_pure(step: StepPlan) -> bool:
    if step.type == "router":
        return step.config.get("strategy") != "llm"
    if step.type == "tool":
        name = str(step.config.get("tool"))
        return step.effect_key is None and name in registry and registry.get(name).pure
    return step.type in _COMPUTED


def _refuse(request: ToolRequest) -> Outcome:
    message = f"a simulation calls no tool: {request.tool}"
    return Failed(error=StepError(error_class=ErrorClass.PERMANENT, message=message))


def _as_given(given: Given) -> Outcome:
    if given.error is not None:
        return Failed(error=given.error.as_error())
    if given.routes is not None:
        return Routed(routes=given.routes, why="as given")
    return Succeeded(output=given.output)


def _as_recorded(step: StepPlan, recorded: Recorded) -> Outcome | None:
    """As the stored run has it; None: the step said nothing there that fits this one."""
    if recorded.state in _GAVE_UP and recorded.error:
        return Failed(error=_error(recorded.error))
    if recorded.state not in _HAS_OUTPUT:
        return None
    if step.type != "router":
        return checked(Succeeded(output=recorded.output), step)
    known = {route["id"] for route in step.config["routes"]}
    chosen = (recorded.output or {}).get("routes") if isinstance(recorded.output, dict) else None
    if not chosen or not known.issuperset(chosen):
        return None
    return Routed(routes=tuple(chosen), why="as recorded")


def _error(stored: Mapping[str, Any]) -> StepError:
    return StepError(
        error_class=ErrorClass(stored["class"]),
        message=str(stored.get("message", "")),
        details=stored.get("details"),
    )


def _assumed(step: StepPlan, workflow: CompiledWorkflow) -> Outcome:
    """The least that the step may answer; where its schema is not known, with blanks for what
    others ask of it."""
    if step.type == "router":
        default = str(step.config["default"])
        return Routed(routes=(default,), why="the default, as no model is asked")
    return Succeeded(output=stand_in(_smallest(step), output_paths(workflow, step.key)))


def _smallest(step: StepPlan) -> Any:
    schema = step.config.get("output_schema")
    if schema is None and step.type == "tool":
        name = str(step.config.get("tool"))
        schema = registry.get(name).output_schema if name in registry else None
    if schema is not None:
        return smallest_instance(schema)
    return {"text": ""} if step.type == "agent" else {}


def is_called(step: StepPlan) -> bool:
    """Whether the step works outside: then its time and its price are known from history only."""
    if step.type == "router":
        return step.config.get("strategy") == "llm"
    return step.type not in _COMPUTED and step.type != "human_gate" and not _is_pure(step)


def may_cost(step: StepPlan) -> bool:
    """Whether it asks a model."""
    return step.type == "agent" or (step.type == "router" and step.config.get("strategy") == "llm")


def assumption(outcome: Outcome) -> str:
    """What is assumed with it, in words."""
    match outcome:
        case Routed(routes=routes):
            return f"the model chooses {', '.join(routes)}, the default"
        case Succeeded():
            return "it succeeds, with the least that its output may be"
        case _:
            return "it does not fail"
