"""What people see of a run, as values; built in ``engine.reading``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from orchestrator.core.states import StepState
from orchestrator.models import ReplayCheck, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPicture:
    """One step, or one item of its for_each. ``cost_microusd`` None: the price is unknown.

    ``until`` is when the wait or the pause before a retry ends; ``items`` counts the items of a
    for_each by state; ``child`` is the run that a sub-workflow step has started. ``sentence`` says
    why the step has not ended yet, for people; ``why`` is only what its executor gave as reason.
    """

    id: UUID | None
    key: str
    scope: str
    position: int
    type: str
    title: str
    label: str
    queue: str
    state: StepState
    attempt: int = 0
    round: int = 1
    started_at: datetime | None = None
    finished_at: datetime | None = None
    cost_microusd: int | None = 0
    tokens: int = 0
    model: str = ""
    worker: str = ""
    error: Mapping[str, Any] | None = None
    covered_by: str = ""
    waiting_for: str = ""
    waiting_key: str = ""
    why: str = ""
    sentence: str = ""
    until: datetime | None = None
    ready_at: datetime | None = None
    dispatched_at: datetime | None = None
    lease_until: datetime | None = None
    items: Mapping[str, int] | None = None
    child: UUID | None = None

    @property
    def name(self) -> str:
        """Key and scope, as the history writes it: ``pages[3]``."""
        return self.key + self.scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """All steps of one state: how many, when the first began, when the last ended."""

    count: int
    earliest_start: datetime | None
    latest_end: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetPicture:
    """What the document allows, and what is left. None: no such limit."""

    cost_microusd: int | None
    duration: timedelta | None
    on_exceeded: str
    remaining_microusd: int | None
    remaining: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPicture:
    """A run as ``GET /v1/workflows/{id}`` and the console show it, at the instant ``now``."""

    run: Run
    now: datetime
    title: str
    label: str
    why: str
    steps: tuple[StepPicture, ...]
    progress: Mapping[str, Progress]
    elapsed: timedelta
    worked: timedelta
    budget: BudgetPicture | None
    summary: Mapping[str, Any] | None
    children: tuple[Run, ...]
    replay: ReplayCheck | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """How things stand now, over all tenants: the console's first page."""

    running: int
    waiting_for_person: int
    waiting_for_review: int
    waiting: int
    paused: int
    failed_lately: int
    open_alerts: int
