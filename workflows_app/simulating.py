"""From a caller's wish to a simulation: which workflow, on which data."""

from __future__ import annotations

from typing import Annotated, Any, Self
from uuid import UUID

from pydantic import Field

from orchestrator import engine
from orchestrator.core.definition import canonical_json
from orchestrator.core.errors import InvalidRequest
from orchestrator.engine import Simulation, Wanted
from orchestrator.models import Run
from workflows_app import publishing, queries, triggering
from workflows_app.errors import DocumentRefused
from workflows_app.principal import Principal
from workflows_app.requests import Body, Short

_ORDER = "say which one: workflow, document or from_run."


class SimulationBody(Body):
    """What ``POST /v1/definitions/simulate`` takes."""

    workflow: Annotated[Short | None, Field(description="A published workflow.")] = None
    version: Annotated[
        int | None, Field(ge=1, le=2_147_483_647, description="Not given: the default version.")
    ] = None
    document: Annotated[
        dict[str, Any] | None, Field(description="A document that need not be published.")
    ] = None
    from_run: Annotated[
        UUID | None,
        Field(
            strict=False,
            description="Its input and its steps' answers are taken, as far as none are given."
            " Without `workflow` and `document`: the version that it ran.",
        ),
    ] = None
    input: Annotated[Any, Field(description="Not given: that of `from_run`, else {}.")] = None
    answers: Annotated[
        dict[str, Any], Field(description="By step: what it answers. See docs/how-to/simulate.md.")
    ] = {}
    correlation_id: Short | None = None

    @classmethod
    def read(cls, value: Any) -> Self:
        """As every body; exactly one workflow must be meant."""
        body = super().read(value)
        if body.workflow is not None and body.document is not None:
            raise _refused("document", "two_workflows", "stands beside workflow: send one of them.")
        if body.version is not None and body.workflow is None:
            raise _refused("version", "no_workflow", "is that of a workflow: name the workflow.")
        if body.workflow is None and body.document is None and body.from_run is None:
            raise _refused("workflow", "missing", f"is missing: {_ORDER}")
        return body


def simulate(
    principal: Principal, body: SimulationBody, *, max_answers: int = engine.MAX_ANSWERS
) -> Simulation:
    """What a run would come to; nothing is stored, and nobody is called.

    Raises NotFound, InvalidRequest (``invalid_definition`` with pointers below ``/document``, and
    as ``engine.simulate``).
    """
    return simulate_subject(principal, None, body, max_answers=max_answers)


def simulate_subject(
    principal: Principal,
    subject: dict[str, Any] | None,
    body: SimulationBody,
    *,
    max_answers: int = engine.MAX_ANSWERS,
) -> Simulation:
    """The same of a ``subject`` made by ``draft_of``; None: of what the body names."""
    stored = None
    if body.from_run is not None:
        stored = queries.find_run(principal.tenant, str(body.from_run))
    return engine.simulate(
        Wanted(
            tenant=principal.tenant,
            actor=principal.actor,
            input=_input(body, stored),
            answers=body.answers,
            recorded=stored,
            correlation_id=body.correlation_id or "",
            **(subject or _subject(principal.tenant, body, stored)),
        ),
        max_answers=max_answers,
    )


def _input(body: SimulationBody, stored: Run | None) -> Any:
    if "input" in body.model_fields_set:
        return body.input
    return {} if stored is None else stored.input


def _subject(tenant: str, body: SimulationBody, stored: Run | None) -> dict[str, Any]:
    """The workflow that is meant, ready to run."""
    if body.document is not None:
        return _of_document(tenant, canonical_json(body.document))
    if body.workflow is None and stored is not None:
        return {
            "workflow": engine.compiled(stored.blueprint_id),
            "version": stored.workflow_version,
            "blueprint_id": stored.blueprint_id,
        }
    version = triggering.live_version(tenant, str(body.workflow), body.version)
    return {
        "workflow": engine.compiled(version.blueprint_id),
        "version": version.number,
        "blueprint_id": version.blueprint_id,
    }


def _of_document(tenant: str, source: bytes) -> dict[str, Any]:
    try:
        return draft_of(tenant, source, publishing.JSON)
    except DocumentRefused as refused:
        raise InvalidRequest(
            str(refused),
            code=refused.code,
            problems=[{**p, "pointer": f"/document{p['pointer']}"} for p in refused.problems],
        ) from None


def draft_of(tenant: str, source: bytes, media_type: str) -> dict[str, Any]:
    """A document that need not be published, ready to run on paper. Raises as publishing does."""
    draft = publishing.draft(tenant, source, media_type)
    workflow = engine.draft(tenant, draft.document, draft.value, draft.pins)
    return {"workflow": workflow}


def _refused(field: str, code: str, detail: str) -> InvalidRequest:
    return InvalidRequest(
        f"{field} {detail}",
        code="invalid_body",
        problems=[{"pointer": f"/{field}", "code": code, "detail": detail}],
    )
