"""Rows and contexts by intent: a run whose gate step is just being executed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from approvals_app.executor import HumanGateExecutor
from approvals_app.models import Request
from orchestrator.core.expressions import compile_template
from orchestrator.core.outcomes import Waiting
from orchestrator.core.states import RunState, StepState
from orchestrator.executors.base import StepContext
from orchestrator.models import Blueprint, Run, Step

TENANT = "acme"
GATE: Mapping[str, Any] = {"type": "human_gate", "assignees": ["role:finance"], "timeout": "4h"}


def a_step_at_work(*, key: str = "approve", fence: int = 1, attempt: int = 1) -> Step:
    """A run whose step ``key`` is running under ``fence``."""
    now = datetime.now(UTC)
    blueprint = Blueprint.objects.create(
        tenant=TENANT, name="order", digest=uuid4().hex, document={}, canonical=b"{}"
    )
    run = Run.objects.create(
        id=uuid4(),
        tenant=TENANT,
        blueprint=blueprint,
        workflow="order",
        workflow_version=1,
        state=RunState.RUNNING,
        compact=b"",
        input={},
        started_by="user:starter",
        correlation_id="c-1",
        worked=timedelta(0),
        time_limit=timedelta(hours=1),
        created_at=now,
        updated_at=now,
    )
    return Step.objects.create(
        id=uuid4(),
        run=run,
        key=key,
        position=0,
        type="human_gate",
        queue="approval",
        state=StepState.RUNNING,
        attempt=attempt,
        fence=fence,
        ready_at=now,
    )


def a_context(
    step: Step, config: Mapping[str, Any] = GATE, *, scope: Mapping[str, Any] | None = None
) -> StepContext:
    """What the engine would hand to the executor for ``step``."""
    names = dict(scope or {"input": {"order": "A-1"}})
    now = datetime.now(UTC)
    return StepContext(
        run_id=str(step.run_id),
        tenant=TENANT,
        workflow="order",
        version=1,
        actor="user:starter",
        correlation_id="c-1",
        traceparent="",
        step_key=step.key,
        item_scope=step.scope,
        attempt=step.attempt,
        fence=step.fence,
        config=config,
        input={"draft": {"text": "Dear Ann"}},
        scope=names,
        render=lambda text: compile_template(text, names=None).render(names),
        idempotency_key=None,
        deadline=now + timedelta(minutes=5),
        started_at=now,
        heartbeat=lambda: None,
    )


def ask(config: Mapping[str, Any] = GATE, **changes: Any) -> Request:
    """An open request, opened as the engine's worker would."""
    step = a_step_at_work(**changes)
    outcome = HumanGateExecutor().execute(a_context(step, config))
    assert isinstance(outcome, Waiting), outcome
    return Request.objects.get(run_id=step.run_id)


def claimed_again(step: Step) -> Step:
    """The same step in the hands of the next worker, after the first one was lost."""
    Step.objects.filter(pk=step.pk).update(fence=step.fence + 1, attempt=step.attempt + 1)
    return Step.objects.get(pk=step.pk)


def with_fence(context: StepContext, fence: int) -> StepContext:
    """The context of a worker that holds another fence."""
    return replace(context, fence=fence)


def requests_of(run_id: UUID) -> list[tuple[int, str]]:
    """``(attempt, state)`` of each round."""
    rows = Request.objects.filter(run_id=run_id).order_by("attempt")
    return list(rows.values_list("attempt", "state"))
