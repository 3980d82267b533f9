"""Reading approvals: lists and single ones, always of one tenant."""

from __future__ import annotations

from uuid import UUID

from django.db.models import Prefetch

from approvals_app.models import Assignment, DatabaseNow, Request, RequestQuerySet
from approvals_app.policy import RequestState
from orchestrator.core.errors import InvalidRequest, NotFound

ALL_STATES = "all"


def with_people(requests: RequestQuerySet) -> RequestQuerySet:
    """These, with who may decide by now and who has said what, in two more queries."""
    asked = Assignment.objects.filter(from_at__lte=DatabaseNow())
    return requests.prefetch_related("decisions", Prefetch("assignments", queryset=asked))


def approvals(
    tenant: str, *, state: str = "", instance_id: str = "", workflow: str = ""
) -> RequestQuerySet:
    """A tenant's approvals, newest first; open ones unless ``state`` says otherwise.

    ``state`` may be ``all``. ``InvalidRequest`` for an unknown state or an id that is none.
    """
    found = with_people(Request.objects.of(tenant)).order_by("-id")
    wanted = state or RequestState.OPEN.value
    if wanted != ALL_STATES:
        found = found.filter(state=_state(wanted))
    if instance_id:
        found = found.filter(run_id=_uuid(instance_id))
    return found.filter(workflow=workflow) if workflow else found


def approval(tenant: str, request_id: UUID) -> Request:
    """One approval; ``NotFound`` also when it is another tenant's."""
    found = with_people(Request.objects.of(tenant)).filter(pk=request_id).first()
    if found is None:
        raise NotFound(f"There is no approval {request_id}.")
    return found


def _state(word: str) -> RequestState:
    try:
        return RequestState(word)
    except ValueError:
        known = ", ".join([*RequestState, ALL_STATES])
        raise _invalid("state", f"{word[:40]!r} is no state; use one of {known}.") from None


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise _invalid("instance_id", f"{text[:60]!r} is not an id of a run.") from None


def _invalid(parameter: str, detail: str) -> InvalidRequest:
    problem = {"pointer": f"/{parameter}", "code": "invalid", "detail": detail}
    return InvalidRequest(detail, code="invalid_query", problems=[problem])
