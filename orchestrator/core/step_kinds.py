"""The step kinds of a document, each one typed block; ``Step`` is their union on ``type``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from orchestrator.core.durations import MicroUsd, PositiveDuration
from orchestrator.core.policies import (
    Block,
    Cel,
    Compensate,
    Effect,
    Escalation,
    ForEach,
    Join,
    JoinField,
    JsonSchema,
    Key,
    Merge,
    MergeField,
    Need,
    NeedField,
    OnError,
    Repeat,
    RetryPolicy,
    Route,
    RouteId,
    ServiceName,
    SignalName,
    Template,
    Text,
)


class StepBase(Block):
    """What every step may say (FORMAT section 1, *Every step*)."""

    title: str | None = None
    description: str | None = None
    needs: Annotated[
        tuple[NeedField, ...],
        Field(strict=False, description="Steps that must have ended before this one starts."),
    ] = ()
    join: Annotated[JoinField, Field(description="How many of the needs must be taken.")] = Join()
    late: Annotated[
        Literal["ignore", "cancel"],
        Field(description="What becomes of branches still running when the join has fired."),
    ] = "ignore"
    merge: Annotated[MergeField, Field(description="How the needed outputs become the input.")] = (
        Merge()
    )
    when: Annotated[Cel | None, Field(description="Skipped when this is false.")] = None
    optional: Annotated[bool, Field(description="May be skipped by repair.")] = False
    input: Annotated[Any, Field(description="JSON with ${{ CEL }}.")] = None
    input_schema: JsonSchema | None = None
    output_schema: JsonSchema | None = None
    timeout: PositiveDuration | None = None
    retry: RetryPolicy | None = None
    fallback: Annotated[
        Key | None, Field(description="Step that runs when this one has given up.")
    ] = None
    on_error: OnError | None = None
    for_each: ForEach | None = None
    repeat: Repeat | None = None
    labels: dict[str, str] | None = None
    cost_limit_usd: Annotated[MicroUsd | None, Field(description="US dollars.")] = None
    effect: Effect | None = None
    compensate: Compensate | None = None
    irreversible: Annotated[bool, Field(description="Cannot be undone once done.")] = False
    queue: Text | None = None
    service: Annotated[ServiceName | None, Field(description="The breaker it belongs to.")] = None

    @property
    def edges(self) -> tuple[Need, ...]:
        """The step's own needs, each as ``Need(step, when, on)``, in the author's order."""
        return self.needs

    @property
    def has_input(self) -> bool:
        """Whether ``input`` is written (null included); else the needed outputs are merged."""
        return "input" in self.model_fields_set


class AgentStep(StepBase):
    """A language model answers, with tools if allowed. Output ``{text}`` or a validated object."""

    type: Literal["agent"]
    model: Annotated[Text, Field(description="Alias, or provider:model.")]
    system: Template | None = None
    prompt: Annotated[
        Template | None, Field(description="Not given: the step's input is the question.")
    ] = None
    tools: Annotated[
        tuple[Text, ...], Field(strict=False, description="The tools that it may call.")
    ] = ()
    max_tokens: Annotated[int | None, Field(ge=1, le=10_000_000)] = None
    temperature: Annotated[float | None, Field(ge=0, le=2)] = None
    max_turns: Annotated[int | None, Field(ge=1, le=1000)] = None


class ToolStep(StepBase):
    """A registered function runs. Output: the function's JSON."""

    type: Literal["tool"]
    tool: Annotated[Text, Field(description="Registered name of the tool.")]


def _one_or_many(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class HumanGateStep(StepBase):
    """A person decides. Output ``{decision, by, notes, data, upstream}``."""

    type: Literal["human_gate"]
    assignees: Annotated[
        tuple[Template, ...],
        Field(strict=False, description="Who may decide: role:…, group:…, user:…"),
    ] = ()
    message: Template | None = None
    form: JsonSchema | None = None
    quorum: Annotated[int, Field(ge=1, le=100)] = 1
    four_eyes: Annotated[bool, Field(description="Who started the run may not decide.")] = False
    remind: Annotated[
        tuple[PositiveDuration, ...],
        BeforeValidator(
            _one_or_many, json_schema_input_type=PositiveDuration | list[PositiveDuration]
        ),
        Field(strict=False, description="Remind after this time, or after each of these."),
    ] = ()
    on_timeout: Literal["reject", "approve", "escalate"] = "reject"
    escalate: Annotated[tuple[Escalation, ...], Field(strict=False)] = ()
    on_reject: Literal["fail", "end", "continue"] = "fail"


@dataclass(frozen=True, slots=True)
class WorkflowRef:
    """``name`` or ``name@3``; ``version`` None means the default at publish."""

    name: str
    version: int | None = None


class SubWorkflowStep(StepBase):
    """Another workflow runs as a run of its own. Output: the child's output."""

    type: Literal["sub_workflow"]
    workflow: Annotated[
        str,
        Field(
            pattern=r"^[a-z][a-z0-9_]{0,62}(@[1-9][0-9]{0,8})?$",
            description="Name, or name@version.",
        ),
    ]

    @property
    def child(self) -> WorkflowRef:
        """The reference, taken apart."""
        name, _, version = self.workflow.partition("@")
        return WorkflowRef(name, int(version) if version else None)


class RouterStep(StepBase):
    """One or more ways are chosen. Output ``{routes, why}``."""

    type: Literal["router"]
    strategy: Literal["rules", "llm", "score"] = "rules"
    value: Annotated[Cel | None, Field(description="score: the number (CEL).")] = None
    model: Annotated[Text | None, Field(description="llm: alias, or provider:model.")] = None
    question: Annotated[Template | None, Field(description="llm: what is asked.")] = None
    mode: Literal["first", "all"] = "first"
    routes: Annotated[tuple[Route, ...], Field(strict=False, min_length=1)]
    default: Annotated[RouteId | None, Field(description="Route taken when none fits.")] = None


class WaitStep(StepBase):
    """Wait for a while, until an instant, or for a signal (exactly one of them)."""

    type: Literal["wait"]
    for_: Annotated[PositiveDuration | None, Field(alias="for")] = None
    until: Annotated[Template | None, Field(description="An instant, ISO 8601.")] = None
    signal: Annotated[SignalName | None, Field(description="The signal's name.")] = None
    schema_: Annotated[JsonSchema | None, Field(alias="schema", description="Of the payload.")] = (
        None
    )
    on_timeout: Literal["fail", "continue"] = "fail"


Step = Annotated[
    AgentStep | ToolStep | HumanGateStep | SubWorkflowStep | RouterStep | WaitStep,
    Field(discriminator="type"),
]
AnyStep = AgentStep | ToolStep | HumanGateStep | SubWorkflowStep | RouterStep | WaitStep
STEP_CLASSES: dict[str, type[StepBase]] = {
    "agent": AgentStep,
    "tool": ToolStep,
    "human_gate": HumanGateStep,
    "sub_workflow": SubWorkflowStep,
    "router": RouterStep,
    "wait": WaitStep,
}
