"""The small blocks that steps and documents share: needs, join, merge, retry, loops, effects."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.functional_validators import PlainValidator
from pydantic_core import PydanticCustomError

from orchestrator.core.durations import Duration, MicroUsd, PositiveDuration
from orchestrator.core.errors import ErrorClass

NAME_PATTERN = r"^[a-z][a-z0-9_]{0,62}$"

Key = Annotated[str, Field(pattern=NAME_PATTERN, title="Key")]
RouteId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
SignalName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.:-]{0,127}$")]
Text = Annotated[str, Field(min_length=1)]
ServiceName = Annotated[
    str, Field(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]+$", title="Service")
]
Cel = Annotated[str, Field(min_length=1, description="A CEL expression, without ${{ }}.")]
Template = Annotated[str, Field(min_length=1, description="Text with ${{ CEL }} in it.")]
JsonSchema = Annotated[dict[str, Any], Field(description="A JSON Schema (2020-12).")]

Priority = Literal["high", "normal", "low"]
EdgeOn = Literal["completed", "failed", "skipped", "any"]
MergeKind = Literal["nested", "shallow", "deep", "list", "first", "expression"]
OnError = Literal["fail", "pause", "continue"]


class Block(BaseModel):
    """A closed, immutable part of the document: unknown keys and loose types are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Need(Block):
    """An edge into a step: which step must have ended how, and under what condition."""

    step: Key
    when: Annotated[Cel | None, Field(description="CEL over output, input and steps.")] = None
    on: EdgeOn = "completed"


@dataclass(frozen=True, slots=True)
class Join:
    """When a step with several needs starts. ``count`` is set for ``at_least`` only."""

    kind: Literal["all", "strict", "any", "at_least"] = "all"
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Merge:
    """How the needed steps' outputs become the input; ``expression`` for that kind only."""

    kind: MergeKind = "nested"
    expression: str | None = None


def _need(value: Any) -> Any:
    return {"step": value} if isinstance(value, str) else value


def _join(value: Any) -> Join:
    if isinstance(value, Join):
        return value
    if value in ("all", "strict", "any"):
        return Join(value)
    if isinstance(value, dict) and list(value) == ["at_least"]:
        count = value["at_least"]
        if isinstance(count, int) and not isinstance(count, bool) and count >= 1:
            return Join("at_least", count)
    raise PydanticCustomError(
        "bad_join", "not a join: write all, strict, any or {at_least: 2} (a number from 1)."
    )


def _merge(value: Any) -> Merge:
    if isinstance(value, Merge):
        return value
    if value in ("nested", "shallow", "deep", "list", "first"):
        return Merge(value)
    if isinstance(value, dict) and list(value) == ["expression"]:
        text = value["expression"]
        if isinstance(text, str) and text:
            return Merge("expression", text)
    raise PydanticCustomError(
        "bad_merge",
        'not a merge: write nested, shallow, deep, list, first or {expression: "CEL"}.',
    )


class JoinCount(Block):
    """At least so many of the needs."""

    at_least: Annotated[int, Field(ge=1)]


class MergeExpression(Block):
    """What the input is, by CEL."""

    expression: Cel


NeedField = Annotated[Need, BeforeValidator(_need, json_schema_input_type=Key | Need)]
JoinField = Annotated[
    Join,
    PlainValidator(_join, json_schema_input_type=Literal["all", "strict", "any"] | JoinCount),
]
MergeField = Annotated[
    Merge,
    PlainValidator(
        _merge,
        json_schema_input_type=Literal["nested", "shallow", "deep", "list", "first"]
        | MergeExpression,
    ),
]


class RetryPolicy(Block):
    """What is written about retries; keys not given come from ``defaults.retry``."""

    max_retries: Annotated[int | None, Field(ge=0, le=1000)] = None
    backoff: Literal["exponential", "linear"] | None = None
    base_delay: Duration | None = None
    max_delay: Duration | None = None
    on: Annotated[
        tuple[Annotated[ErrorClass, Field(strict=False)], ...] | None,
        Field(strict=False, description="Only failures of these classes are retried."),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """A retry policy with every default resolved (FORMAT section 4, Defaults)."""

    max_retries: int = 3
    backoff: Literal["exponential", "linear"] = "exponential"
    base_delay: timedelta = timedelta(seconds=2)
    max_delay: timedelta = timedelta(seconds=60)
    on: frozenset[ErrorClass] = frozenset(
        {ErrorClass.TIMEOUT, ErrorClass.RATE_LIMIT, ErrorClass.TRANSIENT}
    )


class ForEach(Block):
    """Run the step once for each item; its output is the list in item order."""

    items: Annotated[
        Any, Field(description='The list, usually "${{ … }}"; at most 10,000 items when it runs.')
    ]
    as_: Annotated[
        str, Field(alias="as", pattern=r"^[a-z][a-zA-Z0-9_]{0,62}$", description="Item's name.")
    ] = "item"
    max_parallel: Annotated[int | None, Field(ge=1, le=10_000)] = None
    min_success: Annotated[int | None, Field(ge=0, le=10_000)] = None


class Repeat(Block):
    """Run the step again until a condition over its output holds."""

    until: Annotated[Cel, Field(description="CEL over output.")]
    max: Annotated[int, Field(ge=1, le=1000, description="Most rounds.")]
    delay: Duration | None = None
    on_exhausted: Literal["fail", "continue"] = "fail"


class Effect(Block):
    """What the step does to the outside world, and under which business key."""

    key: Annotated[Template, Field(description="Unique per business action, e.g. pay:${{ … }}.")]
    money: Annotated[bool, Field(description="It moves money.")] = False
    on_doubt: Annotated[
        Literal["review", "resend", "skip"],
        Field(description="What happens when nobody can tell whether it was applied."),
    ] = "review"


class Compensate(Block):
    """How to undo the finished step when its run fails or is cancelled."""

    tool: Text
    input: Any = None
    effect: Effect | None = None
    retry: RetryPolicy | None = None


class Escalation(Block):
    """After some time, who else may decide."""

    after: PositiveDuration
    to: Annotated[tuple[Template, ...], Field(strict=False, min_length=1)]


class Route(Block):
    """One way out of a router."""

    id: RouteId
    to: Annotated[tuple[Key, ...], Field(strict=False, description="Steps that it leads to.")]
    when: Annotated[Cel | None, Field(description="rules: taken when this is true.")] = None
    at_least: Annotated[float | None, Field(description="score: taken from this value on.")] = None
    description: Annotated[str | None, Field(description="llm: when this route is right.")] = None


class Budget(Block):
    """What a run may cost; ``duration`` excludes waits for people, signals and timers."""

    cost_usd: Annotated[MicroUsd | None, Field(description="US dollars.")] = None
    duration: PositiveDuration | None = None
    on_exceeded: Literal["pause", "fail", "alert"] = "pause"


class Sla(Block):
    """Advisory: alerts only."""

    complete_within: PositiveDuration


class Defaults(Block):
    """What steps use that do not say otherwise."""

    timeout: PositiveDuration | None = None
    retry: RetryPolicy | None = None


class Trigger(BaseModel):
    """What starts a run besides the API; further keys depend on the type."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)

    type: Literal["webhook", "cron", "queue"]
