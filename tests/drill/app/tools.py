"""Tools with outside effects, one for each way in which a provider can or cannot be asked.

``drill.pay``, ``drill.repay``: the provider honours keys, so they are called again with the same
one. ``drill.order``, ``drill.unorder``: it does not, but it can be looked up by reference.
``drill.send``: it can neither.
"""

from __future__ import annotations

import json
import os
import select
import threading
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import quote, urlsplit

from orchestrator.authoring import Permanent, RateLimited, ToolContext, Transient, tool
from orchestrator.crash import crash_point

ANSWER_S = 1.0
_KEYED, _KEYLESS = "DRILL_KEYED_URL", "DRILL_KEYLESS_URL"
_local = threading.local()


def look_up_order(ctx: ToolContext, reference: str, **_input: Any) -> dict[str, Any] | None:
    """What the keyless provider has under our reference."""
    return _find(_KEYLESS, "order", reference)


def look_up_unorder(ctx: ToolContext, reference: str, **_input: Any) -> dict[str, Any] | None:
    """The same of the taking back."""
    return _find(_KEYLESS, "unorder", reference)


@tool("drill.pay", idempotent=True, effect="required", service="drill.keyed")
def pay(ctx: ToolContext, reference: str, amount_cents: int = 100) -> dict[str, Any]:
    """Take money, with a key that the provider honours."""
    return _call(ctx, _KEYED, "charge", {"reference": reference, "amount_cents": amount_cents})


@tool("drill.repay", idempotent=True, effect="required", service="drill.keyed")
def repay(ctx: ToolContext, reference: str) -> dict[str, Any]:
    """Give it back, with a key of its own."""
    return _call(ctx, _KEYED, "refund", {"reference": reference})


@tool("drill.order", effect="required", reconcile=look_up_order, service="drill.keyless")
def order(ctx: ToolContext, reference: str) -> dict[str, Any]:
    """Order goods from one who knows no keys, but finds our reference."""
    return _call(ctx, _KEYLESS, "order", {"reference": reference})


@tool("drill.unorder", effect="required", reconcile=look_up_unorder, service="drill.keyless")
def unorder(ctx: ToolContext, reference: str) -> dict[str, Any]:
    """Cancel the order there."""
    return _call(ctx, _KEYLESS, "unorder", {"reference": reference})


@tool("drill.send", effect="required", service="drill.keyless")
def send(ctx: ToolContext, reference: str) -> dict[str, Any]:
    """Send something that nobody can ask about afterwards."""
    return _call(ctx, _KEYLESS, "send", {"reference": reference})


@tool("drill.mended", idempotent=True)
def mended(ctx: ToolContext, reference: str) -> str:
    """Fails for good until somebody has mended the affair (at the provider that is asked)."""
    if _find(_KEYLESS, "mend", reference) is None:
        raise Permanent("not mended yet")
    return "mended"


def _call(ctx: ToolContext, where: str, operation: str, body: dict[str, Any]) -> dict[str, Any]:
    """The provider's answer. Whatever leaves open whether it was applied is a plain Transient."""
    headers = {"Content-Type": "application/json"}
    if where == _KEYED and ctx.idempotency_key:
        headers["Idempotency-Key"] = ctx.idempotency_key
    try:
        status, retry_after, answer = _exchange(
            where, "POST", f"/{operation}", json.dumps(body), headers
        )
    except (OSError, HTTPException, ValueError) as error:
        raise Transient(f"{operation}: no answer ({type(error).__name__}: {error})") from error
    if status == 429:
        raise RateLimited(f"{operation}: too many calls", retry_after=float(retry_after or 1))
    if status == 503:
        raise Transient(f"{operation}: not now", not_applied=True)
    if status >= 500:
        raise Transient(f"{operation}: answered {status}")
    if status >= 400:
        raise Permanent(f"{operation}: refused: {answer}")
    return dict(answer)


def _find(where: str, operation: str, reference: str) -> dict[str, Any] | None:
    target = f"/find/{operation}?reference={quote(reference, safe='')}"
    status, _, answer = _exchange(where, "GET", target, None, {})
    if status != 200:
        raise Transient(f"look-up answered {status}")
    found = answer["results"]
    return dict(found[0]["answer"]) if found else None


def _exchange(
    where: str, method: str, target: str, body: str | None, headers: dict[str, str]
) -> tuple[int, str | None, Any]:
    connection = _connection(where)
    try:
        crash_point(f"provider:{method.lower()}")
        connection.request(method, target, body, headers)
        select.select([connection.sock], [], [], ANSWER_S)  # the provider has done its part
        crash_point("provider:unread")
        response = connection.getresponse()
        return (
            response.status,
            response.getheader("Retry-After"),
            json.loads(response.read()),
        )
    except BaseException:
        connection.close()  # the next call opens a new one
        raise


def _connection(where: str) -> HTTPConnection:
    """One for each process, thread and provider, kept open."""
    url = os.environ[where]
    known: dict[tuple[int, str], HTTPConnection] = getattr(_local, "connections", {})
    _local.connections = known
    if (os.getpid(), url) not in known:
        parts = urlsplit(url)
        known[os.getpid(), url] = HTTPConnection(parts.hostname or "", parts.port, timeout=ANSWER_S)
    return known[os.getpid(), url]
