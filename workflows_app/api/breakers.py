"""Outside services: how they are, and keeping work from them for a while."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from orchestrator import engine
from orchestrator.core.errors import NotFound
from orchestrator.core.gates import owner_of
from workflows_app.api.answers import Answer
from workflows_app.api.base import caller, describe
from workflows_app.principal import Scope
from workflows_app.requests import HoldBody, ReleaseBody

STATES = "closed (all is well), open, half_open, held, or limited (a quota)."


class HoldAnswer(Answer):
    """Who holds it, and why."""

    by: str
    reason: str
    since: datetime
    until: Annotated[datetime | None, Field(description="null: until somebody releases it.")]


class ServiceAnswer(Answer):
    """A service, or a model, and its breaker."""

    scope: Annotated[str, Field(description="service, or model.")]
    name: str
    state: Annotated[str, Field(description=STATES)]
    failures: Annotated[int, Field(description="Of the last half minute, as far as known.")]
    calls: int
    since: Annotated[datetime | None, Field(description="When the breaker got its state.")]
    next_probe_at: Annotated[datetime | None, Field(description="When an open one is tried.")]
    last_error: str
    parked: Annotated[int, Field(description="Steps of the tenant that wait for it.")]
    max_in_flight: Annotated[int | None, Field(description="Its quota; null: none.")]
    hold: HoldAnswer | None


class ServicesAnswer(Answer):
    """All of them, by name."""

    results: list[ServiceAnswer]


class ServicesView(APIView):
    """What lies outside."""

    required_scope = Scope.SERVICE_READ

    @describe(
        "listServices",
        "List services with their breakers and holds",
        answers={200: ServicesAnswer},
        tag="Services",
    )
    def get(self, request: Request) -> Response:
        """Every service that a tool names or that has failed once, and every held model. What only
        your documents name is yours, as ``name@tenant``; the others are shared by all tenants."""
        found = engine.services(caller(request).tenant)
        return Response({"results": [_service(one) for one in found]})


class HoldView(APIView):
    """Keep work from a service."""

    required_scope = Scope.SERVICE_HOLD
    problem_statuses: ClassVar = {"POST": (409,)}

    @describe(
        "holdService",
        "Hold a service",
        body=HoldBody,
        answers={200: ServiceAnswer},
        tag="Services",
    )
    def post(self, request: Request, name: str) -> Response:
        """Calls under way finish; steps that would call it wait, for all tenants, and burn no
        attempt. 409 when it is held already."""
        _require_own(request, name)
        body = HoldBody.read(request.data)
        actor = caller(request).actor
        engine.hold("service", name, reason=body.reason, actor=actor, until=body.until)
        return _shown(request, name)


class ReleaseView(APIView):
    """Let work go on."""

    required_scope = Scope.SERVICE_HOLD
    problem_statuses: ClassVar = {"POST": (409,)}

    @describe(
        "releaseService",
        "Release a service",
        body=ReleaseBody,
        answers={200: ServiceAnswer},
        tag="Services",
    )
    def post(self, request: Request, name: str) -> Response:
        """What waits starts in turns, the oldest first. 409 when it is not held."""
        _require_own(request, name)
        body = ReleaseBody.read(request.data)
        engine.release_hold("service", name, reason=body.reason, actor=caller(request).actor)
        return _shown(request, name)


def _require_own(request: Request, name: str) -> None:
    """Another tenant's own service is not there; what is shared has no owner."""
    if owner_of(name) not in ("", caller(request).tenant):
        raise NotFound(f"there is no service {name}")


def _shown(request: Request, name: str) -> Response:
    found = engine.services(caller(request).tenant)
    mine = [one for one in found if (one.scope, one.name) == ("service", name)]
    unknown = engine.ServicePicture(scope="service", name=name, state="closed", parked=0)
    return Response(_service(mine[0] if mine else unknown))


def _service(one: engine.ServicePicture) -> dict[str, Any]:
    names = ("scope", "name", "state", "failures", "calls", "since", "next_probe_at", "last_error")
    hold = None
    if one.held_by:
        hold = {
            "by": one.held_by,
            "reason": one.held_reason,
            "since": one.held_since,
            "until": one.held_until,
        }
    return {
        **{name: getattr(one, name) for name in names},
        "parked": one.parked,
        "max_in_flight": one.max_in_flight,
        "hold": hold,
    }
