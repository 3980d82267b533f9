"""The blocks of a workflow as types: what each method of ``Workflow`` takes, key by key.

They mirror ``core.document`` and ``core.step_kinds``; a test compares the keys. A key that is a
word of Python (``for``) has an underscore behind it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any, Literal, Required, TypedDict

from orchestrator.authoring.references import Expr, Need, StepName, ToolName

Text = str | Expr
Span = str | timedelta
Money = float | str | Decimal
Schema = Mapping[str, Any]
Json = Any
ErrorName = Literal[
    "timeout",
    "rate_limit",
    "transient",
    "permanent",
    "condition_error",
    "schema_error",
    "worker_lost",
    "cancelled",
    "rejected",
    "child_failed",
    "repeat_exhausted",
    "min_success",
]
OnError = Literal["fail", "pause", "continue"]


class RetryBlock(TypedDict, total=False):
    """When, and how often, a failed attempt is made again."""

    max_retries: int
    backoff: Literal["exponential", "linear"]
    base_delay: Span
    max_delay: Span
    on: Sequence[ErrorName]


class EffectBlock(TypedDict, total=False):
    """What the step does to the outside world, under which business key."""

    key: Required[Text]
    money: bool
    on_doubt: Literal["review", "resend", "skip"]


class CompensateBlock(TypedDict, total=False):
    """How the finished step is undone."""

    tool: Required[ToolName]
    input: Json
    effect: EffectBlock
    retry: RetryBlock


ForEachBlock = TypedDict(
    "ForEachBlock",
    {"items": Required[Json], "as": str, "max_parallel": int, "min_success": int},
    total=False,
)


class RepeatBlock(TypedDict, total=False):
    """Rounds of one step until a condition over its output holds."""

    until: Required[Text]
    max: Required[int]
    delay: Span
    on_exhausted: Literal["fail", "continue"]


class NeedBlock(TypedDict, total=False):
    """An edge into a step; ``need`` makes the same."""

    step: Required[StepName]
    when: Text
    on: Literal["completed", "failed", "skipped", "any"]


class JoinCount(TypedDict):
    """At least so many of the needs."""

    at_least: int


class MergeExpression(TypedDict):
    """What the input is, by CEL."""

    expression: Text


class RouteBlock(TypedDict, total=False):
    """One way out of a router."""

    id: Required[str]
    to: Required[Sequence[StepName]]
    when: Text
    at_least: float
    description: str


class EscalationBlock(TypedDict):
    """After some time, who else may decide."""

    after: Span
    to: Sequence[Text]


class BudgetBlock(TypedDict, total=False):
    """What a run may cost."""

    cost_usd: Money
    duration: Span
    on_exceeded: Literal["pause", "fail", "alert"]


class SlaBlock(TypedDict):
    """Advisory: alerts only."""

    complete_within: Span


class DefaultsBlock(TypedDict, total=False):
    """What steps use that do not say otherwise."""

    timeout: Span
    retry: RetryBlock


class WorkflowBlock(TypedDict, total=False):
    """The top level of a document, less ``schema``, ``name`` and ``steps``."""

    title: str | None
    description: str | None
    input: Schema | None
    output: Json
    budget: BudgetBlock | None
    timeout: Span | None
    sla: SlaBlock | None
    max_parallel: int
    priority: Literal["high", "normal", "low"]
    labels: Mapping[str, str] | None
    triggers: Sequence[Mapping[str, Any]]
    on_error: OnError
    defaults: DefaultsBlock


class StepBlock(TypedDict, total=False):
    """What every step may say."""

    title: str | None
    description: str | None
    needs: Sequence[StepName | Need | NeedBlock]
    join: Literal["all", "strict", "any"] | JoinCount
    late: Literal["ignore", "cancel"]
    merge: Literal["nested", "shallow", "deep", "list", "first"] | MergeExpression
    when: Text | None
    optional: bool
    input: Json
    input_schema: Schema | None
    output_schema: Schema | None
    timeout: Span | None
    retry: RetryBlock | None
    fallback: StepName | None
    on_error: OnError | None
    for_each: ForEachBlock | None
    repeat: RepeatBlock | None
    labels: Mapping[str, str] | None
    cost_limit_usd: Money | None
    effect: EffectBlock | None
    compensate: CompensateBlock | None
    irreversible: bool
    queue: str | None
    service: str | None


class AgentBlock(StepBlock, total=False):
    """A language model answers."""

    system: Text | None
    prompt: Text | None
    tools: Sequence[ToolName]
    max_tokens: int | None
    temperature: float | None
    max_turns: int | None


class HumanGateBlock(StepBlock, total=False):
    """A person decides."""

    assignees: Required[Sequence[Text]]
    message: Text | None
    form: Schema | None
    quorum: int
    four_eyes: bool
    remind: Span | Sequence[Span]
    on_timeout: Literal["reject", "approve", "escalate"]
    escalate: Sequence[EscalationBlock]
    on_reject: Literal["fail", "end", "continue"]


class RouterBlock(StepBlock, total=False):
    """One or more ways are chosen."""

    strategy: Literal["rules", "llm", "score"]
    value: Text | None
    model: str | None
    question: Text | None
    mode: Literal["first", "all"]
    routes: Required[Sequence[RouteBlock]]
    default: str | None


class WaitBlock(StepBlock, total=False):
    """A time or a signal: exactly one of ``for_``, ``until``, ``signal``."""

    for_: Span | None
    until: Text | None
    signal: str | None
    schema: Schema | None
    on_timeout: Literal["fail", "continue"]
