"""The bodies that the API answers with, described once; ``shapes`` builds them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

Usd = Annotated[float, Field(description="US dollars, at most 6 decimals.")]
Seconds = Annotated[float, Field(ge=0)]
Cursor = Annotated[
    str | None, Field(description="Pass it as `cursor` for the next page; null at the end.")
]


class Answer(BaseModel):
    """Any answer: exactly these members."""

    model_config = ConfigDict(extra="forbid", strict=False)


class StartAnswer(Answer):
    """A run was started (201), or had been with the same key (200)."""

    instance_id: UUID
    workflow: str
    version: int
    state: str
    status_url: str


class ErrorAnswer(BaseModel):
    """Why an attempt, a step or a run failed."""

    model_config = ConfigDict(extra="allow")

    error_class: Annotated[str, Field(alias="class")]
    message: str


class StepAnswer(Answer):
    """One step of a run, or (with `scope`) one item of its for_each."""

    key: str
    scope: Annotated[str, Field(description="`[3]` for the item of that index, else empty.")]
    type: str
    title: str
    label: Annotated[str, Field(description="The business's word for the state, if declared.")]
    state: str
    attempt: Annotated[int, Field(description="0 before the first start.")]
    round: int
    started_at: datetime | None
    finished_at: datetime | None
    cost_usd: Annotated[Usd | None, Field(description="null: the price is unknown.")]
    tokens: int
    model: str
    error: ErrorAnswer | None
    covered_by: Annotated[str | None, Field(description="The fallback that stands for it.")]
    waiting_for: str | None
    waiting_until: datetime | None
    why: Annotated[
        str | None, Field(description="One sentence on why it has not ended; null once it has.")
    ]
    items: Annotated[dict[str, int] | None, Field(description="Items of a for_each by state.")] = (
        None
    )
    child_instance_id: UUID | None


class ProgressAnswer(Answer):
    """The steps of one state."""

    count: int
    earliest_start: datetime | None
    latest_end: datetime | None


class BudgetAnswer(Answer):
    """What the run may use and what is left; null: no limit of that kind."""

    cost_usd: Usd | None
    remaining_usd: Usd | None
    duration_s: Seconds | None
    remaining_s: Seconds | None
    on_exceeded: str


class TimestampsAnswer(Answer):
    """When what happened, UTC."""

    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime
    deadline_at: datetime | None


class DifferenceAnswer(Answer):
    """Where a replay parted from the record. `sequence` 0: in the rows, behind the history."""

    sequence: int
    expected: str
    recorded: str


class ReplayAnswer(Answer):
    """The newest replay of the run's history. `identical` null: it could not be replayed, since
    it was recorded by other rules than this build knows."""

    checked_at: datetime
    identical: bool | None
    difference: DifferenceAnswer | None


class RunLine(Answer):
    """A run in a list."""

    instance_id: UUID
    workflow: str
    version: int
    state: str
    waiting_for: str | None
    outcome: str | None
    compensation: str | None
    correlation_id: str
    started_by: str
    parent_instance_id: UUID | None
    cost_usd: Usd
    state_version: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    status_url: str


class RunAnswer(RunLine):
    """A run with its steps. `tokens` counts both directions."""

    title: str
    label: Annotated[str, Field(description="The business's word for the state, if declared.")]
    why: Annotated[str, Field(description="One sentence: what runs, is waited for, or ended it.")]
    input: Any
    output: Any
    error: ErrorAnswer | None
    cost_unknown: Annotated[bool, Field(description="Some price was unknown: cost_usd is less.")]
    tokens: int
    tokens_in: int
    tokens_out: int
    budget: BudgetAnswer | None
    steps: list[StepAnswer]
    progress: dict[str, ProgressAnswer]
    elapsed_s: Seconds
    worked_s: Seconds
    warnings: list[dict[str, Any]]
    summary: dict[str, Any] | None
    trigger: Any
    context: Any
    replay: ReplayAnswer | None
    timestamps: TimestampsAnswer


class RunPage(Answer):
    """Runs, newest first."""

    results: list[RunLine]
    next: Cursor


class StepPage(Answer):
    """Items of a for_each, in order."""

    results: list[StepAnswer]
    next: Cursor


class EventAnswer(Answer):
    """One line of the history."""

    sequence: int
    type: str
    step: str | None
    at: datetime
    actor: str | None
    payload: dict[str, Any]


class EventPage(Answer):
    """The history by sequence."""

    results: list[EventAnswer]
    next: Annotated[int | None, Field(description="Pass it as `after`; null at the end.")]


class SignalAnswer(Answer):
    """What became of a signal. `applied`: a step took it at once, else it is kept."""

    accepted: bool
    applied: bool
    duplicate: bool
    transition: str | None


class ProblemAnswer(Answer):
    """One finding about a document."""

    severity: str
    code: str
    pointer: str
    line: int | None
    message: str


class ValidationAnswer(Answer):
    """Everything about a document at once."""

    valid: bool
    problems: list[ProblemAnswer]


class PublishedAnswer(Answer):
    """The version that this document is."""

    name: str
    version: int
    digest: str
    problems: Annotated[list[ProblemAnswer], Field(description="Warnings only.")]


class VersionLine(Answer):
    """A version in a list."""

    version: int
    digest: str
    state: str
    default: bool
    published_at: datetime
    published_by: str


class DefinitionLine(Answer):
    """A workflow in a list; `version` and `digest` are null when all versions are retired."""

    name: str
    title: str
    description: str
    version: int | None
    digest: str | None


class DefinitionAnswer(DefinitionLine):
    """A workflow with its default document and all its versions, newest first."""

    document: dict[str, Any] | None
    versions: list[VersionLine]


class DefinitionPage(Answer):
    """Workflows by name."""

    results: list[DefinitionLine]
    next: Cursor


class VersionAnswer(VersionLine):
    """A published version, frozen."""

    name: str
    document: dict[str, Any]
    pins: Annotated[dict[str, str], Field(description="Child workflows and their digests.")]
    source: Annotated[str, Field(description="The text as it was published.")]
    media_type: str
