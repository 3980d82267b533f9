"""``http.request``: one HTTP call."""

from __future__ import annotations

import base64
import json as json_text
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Annotated, Any, Literal, NoReturn

import httpx
from pydantic import Field

from orchestrator.adapters.http import HttpRequest, HttpResponse, send
from orchestrator.authoring import Permanent, RateLimited, ToolContext, Transient, tool

Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
KEY_HEADER = "Idempotency-Key"
DEFAULT_TIMEOUT_S = 30.0
MAX_SHOWN = 200
MAX_REFERENCE = 500
_TRY_AGAIN = frozenset({408, 425})


@tool("http.request", key_header=KEY_HEADER)
def request(  # noqa: PLR0913 - the parameters are the document's words for a call
    ctx: ToolContext,
    url: str,
    method: Method = "GET",
    headers: dict[str, str] | None = None,
    query: dict[str, str | int | float | bool] | None = None,
    json: Any = None,
    body: str | None = None,
    expect: Annotated[list[int] | None, Field(max_length=50)] = None,
    timeout_s: Annotated[float | None, Field(gt=0, le=3600)] = None,
    key_header: str = KEY_HEADER,
    reference: Annotated[str | None, Field(max_length=500)] = None,
) -> dict[str, Any]:
    """Call ``url`` and answer ``{status, headers, json, text, base64, external_ref}``.

    ``json`` is the parsed body of a JSON answer; else ``text`` holds it, or ``base64`` where it is
    no text; the others are null. ``body`` (text) or ``json`` is sent. A step with an effect sends
    its key in the header ``key_header``, whatever ``headers`` say. ``external_ref`` is the other
    side's name for what happened: at the JSON pointer ``reference`` of its answer, else
    ``external_ref`` or ``id`` of a JSON object, else the header ``Location``, else null. Statuses
    from 200 to 299 and those in ``expect`` succeed; 429 is a rate limit, 408, 425 and 5xx are
    transient, all others permanent. Redirects are not followed.
    """
    content, kind = _content(json, body)
    answer = send(
        HttpRequest(
            method=method,
            url=_with_query(url, query),
            headers=_headers(ctx, headers, kind=kind, key_header=key_header),
            body=content,
            timeout_s=min(timeout_s or DEFAULT_TIMEOUT_S, ctx.time_left()),
        )
    )
    if not 200 <= answer.status < 300 and answer.status not in (expect or ()):
        raise _failure(answer)
    shapes = _body(answer)
    named = _reference(shapes["json"], reference) or answer.headers.get("location")
    return {
        "status": answer.status,
        "headers": dict(answer.headers),
        **shapes,
        "external_ref": named,
    }


def _with_query(url: str, query: dict[str, str | int | float | bool] | None) -> str:
    if not query:
        return url
    try:
        return str(httpx.URL(url).copy_merge_params(query))
    except httpx.InvalidURL as error:
        raise Permanent(f"url: {error}") from error


def _content(json: Any, body: str | None) -> tuple[bytes, str | None]:
    if json is not None and body is not None:
        raise Permanent("give json or body, not both")
    if json is not None:
        return json_text.dumps(json, ensure_ascii=False).encode(), "application/json"
    return (b"", None) if body is None else (body.encode(), "text/plain; charset=utf-8")


def _headers(
    ctx: ToolContext, headers: Mapping[str, str] | None, *, kind: str | None, key_header: str
) -> dict[str, str]:
    own: dict[str, str] = {"User-Agent": "durable-workflow-orchestrator", "Accept": "*/*"}
    if kind is not None:
        own["Content-Type"] = kind
    if ctx.traceparent:
        own["traceparent"] = ctx.traceparent
    given = dict(headers or {})
    if ctx.idempotency_key is not None:  # the effect's key stands above the document's headers
        given = {k: v for k, v in given.items() if k.lower() != key_header.lower()}
        given[key_header] = ctx.idempotency_key
    written = {name.lower() for name in given}
    return {**{name: value for name, value in own.items() if name.lower() not in written}, **given}


def _failure(answer: HttpResponse) -> Exception:
    text = f"the server answered {answer.status}"
    shown = " ".join(answer.body[: MAX_SHOWN * 4].decode("utf-8", "replace").split())[:MAX_SHOWN]
    if shown:
        text = f"{text}: {shown}"
    if answer.status == 429:
        return RateLimited(text, retry_after=_retry_after(answer))
    if answer.status >= 500 or answer.status in _TRY_AGAIN:
        return Transient(text, retry_after=_retry_after(answer))
    if "location" in answer.headers:
        text = f"{text} (redirect to {answer.headers['location'][:MAX_SHOWN]} not followed)"
    return Permanent(text)


def _retry_after(answer: HttpResponse) -> float | None:
    """Seconds from ``Retry-After``, which holds seconds or a date; None when unreadable."""
    written = answer.headers.get("retry-after", "").strip()
    if written.isascii() and written.isdigit():
        return float(written[:9])
    try:
        at = parsedate_to_datetime(written)
    except ValueError:
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return max(0.0, (at - datetime.now(UTC)).total_seconds())


def _body(answer: HttpResponse) -> dict[str, Any]:
    shapes: dict[str, Any] = {"json": None, "text": None, "base64": None}
    if answer.headers.get("content-encoding", "identity") != "identity":
        return {**shapes, "base64": base64.b64encode(answer.body).decode("ascii")}
    if _is_json(answer.headers.get("content-type", "")) and answer.body:
        try:
            return {**shapes, "json": json_text.loads(answer.body, parse_constant=_refuse)}
        except (ValueError, RecursionError):
            pass  # It says JSON and is none: the author gets to see the text.
    try:
        text = answer.body.decode("utf-8")
    except UnicodeDecodeError:
        text = "\x00"
    if "\x00" in text:
        return {**shapes, "base64": base64.b64encode(answer.body).decode("ascii")}
    return {**shapes, "text": text}


def _reference(value: Any, pointer: str | None) -> str | None:
    """The other side's name for what happened, as text; None where the answer has none."""
    if pointer is not None:
        return _as_reference(_at(value, pointer))
    if not isinstance(value, dict):
        return None
    return _as_reference(value.get("external_ref")) or _as_reference(value.get("id"))


def _at(value: Any, pointer: str) -> Any:
    """What stands at a JSON pointer (RFC 6901), or None."""
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list) and name.isascii() and name.isdigit():
            value = value[int(name[:9])] if int(name[:9]) < len(value) else None
        else:
            return None
    return value


def _as_reference(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    return str(value)[:MAX_REFERENCE] or None


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
