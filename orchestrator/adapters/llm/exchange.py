"""One call of a provider over HTTP: JSON there and back, each failure in the engine's words."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import orjson

from orchestrator.adapters.http import HttpRequest, HttpResponse, TooSlow, send
from orchestrator.adapters.llm.base import ModelError
from orchestrator.adapters.llm.endpoints import Endpoint
from orchestrator.authoring import Permanent, Transient
from orchestrator.core.errors import ErrorClass, storable

MAX_ANSWER_BYTES = 2 * 1024 * 1024
_MAX_SHOWN = 300
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")
_CLASSES: Mapping[int, ErrorClass] = {
    408: ErrorClass.TIMEOUT,
    409: ErrorClass.TRANSIENT,
    425: ErrorClass.TRANSIENT,
    429: ErrorClass.RATE_LIMIT,
    504: ErrorClass.TIMEOUT,
}
# The key, the account or the model is wrong there; another provider may do.
_ELSEWHERE = frozenset({401, 402, 403, 404, 405, 410})


def post(
    endpoint: Endpoint,
    path: str,
    body: Mapping[str, Any],
    *,
    model: str,
    headers: Mapping[str, str],
    timeout_s: float,
) -> dict[str, Any]:
    """The provider's answer, an object; ``ModelError`` for everything else that may come."""
    who = f"{endpoint.name}:{model}"
    request = HttpRequest(
        method="POST",
        url=endpoint.url + path,
        headers={"Content-Type": "application/json", **headers},
        body=orjson.dumps(body),
        timeout_s=timeout_s,
        max_bytes=MAX_ANSWER_BYTES,
        own=True,
    )
    try:
        answer = send(request)
    except TooSlow as error:
        # What was sent may have been worked on, and is on the bill then.
        sent = not error.not_applied
        raise ModelError(f"{who}: {error}", error_class=ErrorClass.TIMEOUT, billed=sent) from error
    except Transient as error:
        sent = not error.not_applied
        raise ModelError(
            f"{who}: {error}", error_class=ErrorClass.TRANSIENT, billed=sent
        ) from error
    except Permanent as error:
        raise ModelError(
            f"{who}: {error}", error_class=ErrorClass.PERMANENT, elsewhere=True
        ) from error
    if not 200 <= answer.status < 300:
        raise _refused(who, answer, hidden=tuple(headers.values()))
    return _object(who, answer.body)


def malformed(who: str, what: str) -> ModelError:
    """An answer that is none: paid for, and of no use."""
    return ModelError(
        f"{who} answered something that cannot be read: {what}",
        error_class=ErrorClass.TRANSIENT,
        billed=True,
    )


def clean(text: str) -> str:
    """A model's words as they can be stored: no NUL, no half characters; of any length."""
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def _object(who: str, body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)  # unlike orjson it takes half characters, which are mended later
    except (ValueError, RecursionError) as error:
        raise malformed(who, f"no JSON ({error})") from error
    if not isinstance(value, dict):
        raise malformed(who, f"JSON, but no object: {type(value).__name__}")
    return value


def _refused(who: str, answer: HttpResponse, *, hidden: tuple[str, ...]) -> ModelError:
    status = answer.status
    error_class = _CLASSES.get(
        status, ErrorClass.TRANSIENT if status >= 500 else ErrorClass.PERMANENT
    )
    elsewhere = error_class is not ErrorClass.PERMANENT or status in _ELSEWHERE or status < 400
    said = _words(answer.body, hidden)
    return ModelError(
        f"{who} answered {status}" + (f": {said}" if said else ""),
        error_class=error_class,
        retry_after=_retry_after(answer.headers),
        elsewhere=elsewhere,
    )


def _words(body: bytes, hidden: tuple[str, ...]) -> str:
    """What the provider says about it, without the key that some repeat."""
    try:
        error = orjson.loads(body).get("error")
        text = error.get("message") if isinstance(error, dict) else error
    except (orjson.JSONDecodeError, AttributeError):
        text = None
    if not isinstance(text, str):
        text = body[: 4 * _MAX_SHOWN].decode("utf-8", "replace")
    for value in hidden:
        secret = value.removeprefix("Bearer ")
        if len(secret) >= 8:
            text = text.replace(secret, "[key]")
    return storable(_CONTROL.sub(" ", text)).strip()[:_MAX_SHOWN]


def _retry_after(headers: Mapping[str, str]) -> float | None:
    exact = _number(headers.get("retry-after-ms"))
    if exact is not None:
        return exact / 1000
    given = headers.get("retry-after")
    seconds = _number(given)
    if seconds is not None or given is None:
        return seconds
    try:
        at = parsedate_to_datetime(given)
    except (ValueError, OverflowError):
        return None
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return max(0.0, (at - datetime.now(UTC)).total_seconds())


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else -1.0
    except ValueError:
        return None
    return value if 0 <= value < 1e9 else None
