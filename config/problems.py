"""Every error of the API as a problem document (RFC 9457), also the ones nobody expected."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import Http404
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import set_rollback

from approvals_app.decisions import NotAnAssignee
from orchestrator.core.errors import InvalidRequest, NotFound, OrchestratorError, StateConflict
from orchestrator.core.source import SourceError
from workflows_app.errors import BadKey, DocumentRefused, KeyInFlight

MEDIA_TYPE = "application/problem+json"
OUTAGE_RETRY_S = "5"

# The first class that fits decides.
STATUS_OF: dict[type[OrchestratorError], int] = {
    NotFound: 404,
    StateConflict: 409,
    InvalidRequest: 422,
    BadKey: 400,
    NotAnAssignee: 403,
}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem document. ``extra`` are members beside the six that every one has."""

    status: int
    code: str
    detail: str
    errors: Sequence[Mapping[str, str]] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        """The JSON; ``code`` is the stable word to program against."""
        return {
            "type": f"urn:orchestrator:problem:{self.code}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            "errors": list(self.errors),
            **self.extra,
        }


def problem_response(exc: Exception, context: Mapping[str, Any]) -> Response:
    """The DRF exception handler: one of the three places where a broad catch is right."""
    problem = as_problem(exc)
    if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        request = context.get("request")
        log.error(
            "%s %s answered %s",
            getattr(request, "method", ""),
            getattr(request, "path", ""),
            problem.status,
            exc_info=exc,
        )
    set_rollback()
    return Response(
        problem.body(),
        status=problem.status,
        headers=dict(problem.headers),
        content_type=MEDIA_TYPE,
    )


def as_problem(exc: Exception) -> Problem:
    """What the caller is told about ``exc``; nothing of the inside when it was not expected."""
    match exc:
        case OrchestratorError():
            return _of_ours(exc)
        case SourceError():
            return _of_text(exc)
        case exceptions.APIException():
            return _of_framework(exc)
        case Http404():
            return Problem(status=404, code="not_found", detail="There is nothing here.")
        case PermissionDenied():
            return Problem(status=403, code="forbidden", detail=str(exc) or "Not allowed.")
        case SuspiciousOperation():
            return Problem(status=400, code="bad_request", detail="The request is malformed.")
        case OperationalError() | InterfaceError():
            return unavailable()
        case _:
            return unexpected()


def unavailable() -> Problem:
    """503: the database does not answer; nothing was done."""
    return Problem(
        status=503,
        code="unavailable",
        detail="The database does not answer. Nothing was done; repeat the call later.",
        headers={"Retry-After": OUTAGE_RETRY_S},
    )


def crowded() -> Problem:
    """503: too many requests wait for this process; nothing was done."""
    return Problem(
        status=503,
        code="unavailable",
        detail="Too many requests wait here. Nothing was done; repeat the call later.",
        headers={"Retry-After": OUTAGE_RETRY_S},
    )


def unexpected() -> Problem:
    """500: our fault; the log has it."""
    return Problem(
        status=500, code="internal_error", detail="Something went wrong here; it was logged."
    )


def _of_ours(exc: OrchestratorError) -> Problem:
    status = next((s for kind, s in STATUS_OF.items() if isinstance(exc, kind)), None)
    if status is None:
        return unexpected()
    errors = exc.problems if isinstance(exc, InvalidRequest) else ()
    return Problem(
        status=status,
        code=exc.code,
        detail=str(exc),
        errors=errors,
        headers={"Retry-After": str(exc.retry_after)} if isinstance(exc, KeyInFlight) else {},
        extra=_members(exc),
    )


def _members(exc: OrchestratorError) -> dict[str, Any]:
    if isinstance(exc, DocumentRefused):
        return {"problems": [finding.as_json() for finding in exc.findings]}
    if isinstance(exc, StateConflict):
        return {"state": exc.state}
    return {}


def _of_text(exc: SourceError) -> Problem:
    too_large = any(problem.code == "too_large" for problem in exc.problems)
    return Problem(
        status=413 if too_large else 400,
        code="too_large" if too_large else "malformed_body",
        detail="The body cannot be read; errors says why.",
        errors=[
            {
                "pointer": p.pointer,
                "code": p.code,
                "detail": p.message if p.line is None else f"line {p.line}: {p.message}",
            }
            for p in exc.problems
        ],
        extra={"problems": [p.as_json() for p in exc.problems]},
    )


def _of_framework(exc: exceptions.APIException) -> Problem:
    codes, detail = exc.get_codes(), str(exc.detail)
    headers: dict[str, str] = {}
    if challenge := getattr(exc, "auth_header", None):
        headers["WWW-Authenticate"] = challenge
    if wait := getattr(exc, "wait", None):
        headers["Retry-After"] = str(int(wait) + 1)
    if isinstance(exc, exceptions.NotAuthenticated):
        detail = "Send a token in the header: Authorization: Bearer <token>."
    if isinstance(exc, exceptions.ValidationError):
        return Problem(
            status=422,
            code="invalid_body",
            detail="The body does not fit; errors says where.",
            errors=_flattened(exc.get_full_details(), ""),
        )
    return Problem(
        status=exc.status_code,
        code=codes if isinstance(codes, str) else "error",
        detail=detail,
        headers=headers,
    )


def _flattened(details: Any, pointer: str) -> list[dict[str, str]]:
    if isinstance(details, dict) and set(details) == {"message", "code"}:
        return [{"pointer": pointer, "code": details["code"], "detail": details["message"]}]
    items = details.items() if isinstance(details, dict) else enumerate(details)
    inner = isinstance(details, dict)
    return [
        found
        for name, each in items
        for found in _flattened(each, f"{pointer}/{name}" if inner else pointer)
    ]
