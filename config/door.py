"""The outermost layer of /v1: bounded bodies in, problem documents out, whatever broke inside."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

import orjson
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.http.response import HttpResponseBase

from config.problems import MEDIA_TYPE, Problem, unavailable, unexpected
from orchestrator.core.source import MAX_BYTES

API = "/v1/"
GetResponse = Callable[[HttpRequest], HttpResponseBase]

_NUL = "%00"  # PostgreSQL stores no such text, so no filter can mean it
_CODES = {400: "bad_request", 403: "forbidden", 404: "not_found"}


class ApiDoor:
    """Middleware, first in the list: nothing under /v1 is ever answered with a HTML error page."""

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Let the request through, or answer for what lies behind."""
        if not request.path.startswith(API):
            if _NUL in request.META.get("QUERY_STRING", ""):
                return HttpResponseBadRequest("The address holds a NUL character: remove %00.")
            return self._get_response(request)
        if not _take_length(request):
            return _answer(
                Problem(
                    status=413,
                    code="too_large",
                    detail=f"The body is larger than {MAX_BYTES} bytes (1 MiB).",
                )
            )
        return _without_html(request, self._get_response(request))

    def process_exception(self, request: HttpRequest, exc: Exception) -> HttpResponse | None:
        """A database that went away before a view could catch it."""
        if request.path.startswith(API) and isinstance(exc, OperationalError | InterfaceError):
            return _answer(unavailable())
        return None


def _take_length(request: HttpRequest) -> bool:
    """Whether the body is within bounds.

    A chunked body has no length of its own and would be taken for none; its size is noted here.
    """
    if "HTTP_TRANSFER_ENCODING" in request.META:
        body = request.read(MAX_BYTES + 1)
        request._body = body  # noqa: SLF001 - what .body would set
        request.META["CONTENT_LENGTH"] = str(len(body))
    length = request.META.get("CONTENT_LENGTH") or "0"
    return not length.isdigit() or int(length) <= MAX_BYTES


def _without_html(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    kind = response.headers.get("Content-Type", "")
    if response.status_code < HTTPStatus.BAD_REQUEST or not kind.startswith("text/html"):
        return response
    code = _CODES.get(response.status_code)
    if code is None:
        return _answer(unexpected())
    detail = f"There is nothing at {request.path}." if code == "not_found" else "Refused."
    return _answer(Problem(status=response.status_code, code=code, detail=detail))


def _answer(problem: Problem) -> HttpResponse:
    return HttpResponse(
        orjson.dumps(problem.body()),
        status=problem.status,
        headers=dict(problem.headers),
        content_type=MEDIA_TYPE,
    )
