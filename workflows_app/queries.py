"""What the desk reads: runs, histories and definitions of one tenant, never of another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from django.db.models import Prefetch, QuerySet

from orchestrator import engine
from orchestrator.core.errors import InvalidRequest, NotFound
from orchestrator.core.states import RunState
from orchestrator.models import Event, Run
from workflows_app.models import Workflow, WorkflowVersion

_LINE = (
    *("id", "workflow", "workflow_version", "state", "waiting_for", "outcome", "correlation_id"),
    *("started_by", "parent_id", "cost_microusd", "version"),
    *("created_at", "started_at", "finished_at"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs a list shows; empty members do not narrow it."""

    states: Sequence[str] = ()
    workflow: str = ""
    correlation_id: str = ""
    started_after: str = ""


def find_run(tenant: str, instance_id: str) -> Run:
    """The run; NotFound also when it is another tenant's, or no id at all."""
    run = None
    if (run_id := _uuid(instance_id)) is not None:
        run = Run.objects.of(tenant).filter(pk=run_id).first()
    if run is None:
        raise NotFound(f"There is no run {instance_id}.")
    return run


def find_run_id(tenant: str, instance_id: str) -> UUID:
    """As ``find_run``, without loading it."""
    run_id = _uuid(instance_id)
    if run_id is None or not Run.objects.of(tenant).filter(pk=run_id).exists():
        raise NotFound(f"There is no run {instance_id}.")
    return run_id


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def runs(tenant: str, wanted: RunFilter) -> QuerySet[Run]:
    """The tenant's runs, without their data; InvalidRequest for a filter that means nothing."""
    found = Run.objects.of(tenant).only(*_LINE)
    if wanted.states:
        found = found.filter(state__in=[_state(word) for word in wanted.states])
    if wanted.workflow:
        found = found.filter(workflow=_text("workflow", wanted.workflow))
    if wanted.correlation_id:
        text = _text("correlation_id", wanted.correlation_id)
        found = found.filter(correlation_id=text)
    if wanted.started_after:
        found = found.filter(created_at__gt=_instant("started_after", wanted.started_after))
    return found


def history(run_id: UUID) -> QuerySet[Event]:
    """The run's history; page by ``seq``."""
    return Event.objects.filter(run_id=run_id)


def definitions(tenant: str) -> QuerySet[Workflow]:
    """The tenant's workflows, each with its default version as ``defaults``; page by name."""
    light = WorkflowVersion.objects.filter(is_default=True).select_related("blueprint")
    light = light.defer("source", "blueprint__document", "blueprint__canonical")
    return Workflow.objects.filter(tenant=tenant).prefetch_related(
        Prefetch("versions", light, to_attr="defaults")
    )


def defaults(workflow: Workflow) -> list[WorkflowVersion]:
    """The default version of a workflow read by ``definitions``; none when all are retired."""
    found: list[WorkflowVersion] = workflow.defaults  # type: ignore[attr-defined]
    return found


def loop_key(run: Run, parent: str) -> str:
    """``parent`` as the key of a for_each of the run; InvalidRequest when it is none."""
    workflow = engine.compiled(run.blueprint_id)
    if parent not in workflow.by_key or workflow.step(parent).for_each is None:
        raise _bad("parent", "name a step with for_each.")
    return parent


def find_definition(tenant: str, name: str) -> Workflow:
    """The workflow of that name; NotFound when the tenant has none."""
    found = (
        Workflow.objects.filter(tenant=tenant, name=name).first() if "\x00" not in name else None
    )
    if found is None:
        raise NotFound(f"There is no workflow {name!r}.")
    return found


def versions(workflow: Workflow) -> QuerySet[WorkflowVersion]:
    """All versions, newest first, without their texts."""
    light = workflow.versions.select_related("blueprint").order_by("-number")
    return light.defer("source", "blueprint__document", "blueprint__canonical")


def find_version(workflow: Workflow, number: int) -> WorkflowVersion:
    """One version with its document; NotFound for a number that was never given."""
    found = workflow.versions.filter(number=number).select_related("blueprint", "workflow")
    version = found.defer("blueprint__canonical").first()
    if version is None:
        raise NotFound(f"Workflow {workflow.name!r} has no version {number}.")
    return version


def _state(word: str) -> str:
    try:
        return RunState(word)
    except ValueError:
        words = ", ".join(RunState)
        raise _bad("state", f'"{word}" is no state of a run: use {words}.') from None


def _text(name: str, text: str) -> str:
    if "\x00" in text:
        raise _bad(name, "remove the NUL character.")
    return text


def _instant(name: str, text: str) -> datetime:
    """An ISO 8601 instant. A plus sign that was not escaped in the address arrives as a blank."""
    head, _, tail = text.partition("T")
    try:
        at = datetime.fromisoformat(f"{head}T{tail.replace(' ', '+')}" if tail else head)
        # A zone may push the first or the last day out of what an instant can be.
        return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise _bad(name, "write an instant like 2026-01-31T12:00:00Z.") from None


def _bad(name: str, detail: str) -> InvalidRequest:
    return InvalidRequest(
        f"The query parameter {name} cannot be used: {detail}",
        code="invalid_query",
        problems=[{"pointer": f"/{name}", "code": "invalid_query", "detail": detail}],
    )
