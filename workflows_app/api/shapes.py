"""From what was read to what is answered; ``answers`` describes the same shapes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from orchestrator.engine import RunPicture, StepPicture
from orchestrator.models import Event, Run
from workflows_app.models import Workflow, WorkflowVersion


def usd(microusd: int) -> float:
    """Micro-dollars as dollars; exact, since no amount has more than 15 digits."""
    return microusd / 1_000_000


def run_line(run: Run) -> dict[str, Any]:
    """A run in a list."""
    return {
        "instance_id": run.id,
        "workflow": run.workflow,
        "version": run.workflow_version,
        "state": run.state,
        "waiting_for": run.waiting_for or None,
        "outcome": run.outcome or None,
        "compensation": run.compensation or None,
        "correlation_id": run.correlation_id,
        "started_by": run.started_by,
        "parent_instance_id": run.parent_id,
        "cost_usd": usd(run.cost_microusd),
        "state_version": run.version,
        "created_at": run.created_at,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "status_url": f"/v1/workflows/{run.id}",
    }


def run_answer(picture: RunPicture) -> dict[str, Any]:
    """A run with everything that FORMAT section 2 lists."""
    run = picture.run
    return {
        **run_line(run),
        "title": picture.title,
        "label": picture.label,
        "why": picture.why,
        "input": run.input,
        "output": run.output,
        "error": run.error,
        "cost_unknown": run.cost_unknown,
        "tokens": run.tokens_in + run.tokens_out,
        "tokens_in": run.tokens_in,
        "tokens_out": run.tokens_out,
        "budget": _budget(picture),
        "steps": [step_answer(step) for step in picture.steps],
        "progress": {
            state: {
                "count": progress.count,
                "earliest_start": progress.earliest_start,
                "latest_end": progress.latest_end,
            }
            for state, progress in picture.progress.items()
        },
        "elapsed_s": _seconds(picture.elapsed),
        "worked_s": _seconds(picture.worked),
        "warnings": run.warnings,
        "summary": picture.summary,
        "trigger": run.trigger,
        "context": run.context,
        "replay": _replay(picture),
        "timestamps": {
            "created_at": run.created_at,
            "started_at": run.started_at,
            "finished_at": run.finished_at,
            "updated_at": run.updated_at,
            "deadline_at": run.deadline_at,
        },
    }


def _replay(picture: RunPicture) -> dict[str, Any] | None:
    check = picture.replay
    if check is None:
        return None
    return {
        "checked_at": check.checked_at,
        "identical": check.identical,
        "difference": check.difference,
    }


def step_answer(step: StepPicture) -> dict[str, Any]:
    """A step, or an item of a for_each."""
    shape = {
        "key": step.key,
        "scope": step.scope,
        "type": step.type,
        "title": step.title,
        "label": step.label,
        "state": step.state,
        "attempt": step.attempt,
        "round": step.round,
        "started_at": step.started_at,
        "finished_at": step.finished_at,
        "cost_usd": None if step.cost_microusd is None else usd(step.cost_microusd),
        "tokens": step.tokens,
        "model": step.model,
        "error": step.error,
        "covered_by": step.covered_by or None,
        "waiting_for": step.waiting_for or None,
        "waiting_until": step.until,
        "why": step.sentence or None,
        "child_instance_id": step.child,
    }
    return shape if step.items is None else {**shape, "items": step.items}


def _budget(picture: RunPicture) -> dict[str, Any] | None:
    budget = picture.budget
    if budget is None:
        return None
    cost, remaining = budget.cost_microusd, budget.remaining_microusd
    return {
        "cost_usd": None if cost is None else usd(cost),
        "remaining_usd": None if remaining is None else usd(remaining),
        "duration_s": None if budget.duration is None else _seconds(budget.duration),
        "remaining_s": None if budget.remaining is None else _seconds(budget.remaining),
        "on_exceeded": budget.on_exceeded,
    }


def _seconds(span: timedelta) -> float:
    return max(0.0, span.total_seconds())


def event_answer(event: Event) -> dict[str, Any]:
    """A line of the history."""
    return {
        "sequence": event.seq,
        "type": event.type,
        "step": event.step or None,
        "at": event.at,
        "actor": event.actor or None,
        "payload": event.payload,
    }


def definition_line(workflow: Workflow, default: WorkflowVersion | None) -> dict[str, Any]:
    """A workflow in a list."""
    return {
        "name": workflow.name,
        "title": workflow.title,
        "description": workflow.description,
        "version": None if default is None else default.number,
        "digest": None if default is None else default.blueprint.digest,
    }


def version_line(version: WorkflowVersion) -> dict[str, Any]:
    """A version in a list."""
    return {
        "version": version.number,
        "digest": version.blueprint.digest,
        "state": version.state,
        "default": version.is_default,
        "published_at": version.published_at,
        "published_by": version.published_by,
    }


def version_answer(version: WorkflowVersion) -> dict[str, Any]:
    """A version with its document."""
    return {
        **version_line(version),
        "name": version.workflow.name,
        "document": version.blueprint.document,
        "pins": version.blueprint.pins,
        "source": version.source,
        "media_type": version.media_type,
    }
