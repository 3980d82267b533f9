"""Opening a request, and closing it when the engine says that its gate is over."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import DatabaseError, connection

from approvals_app.models import Request, new_request_id
from approvals_app.policy import RequestState
from orchestrator import engine
from orchestrator.models import Step, statements

logger = logging.getLogger(__name__)

SYSTEM_TIMEOUT = "system:timeout"
SYSTEM_RUN = "system:run"

_CLOSED_FOR = {
    "timeout": (RequestState.EXPIRED, SYSTEM_TIMEOUT),
    "cancelled": (RequestState.CANCELLED, SYSTEM_RUN),
    "decided": (RequestState.DECIDED, SYSTEM_RUN),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Who is asked, ``after`` so long; tier 0 at once."""

    who: str
    tier: int
    after: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRequest:
    """What a gate asks, with every template rendered. ``fence`` proves that the step is held."""

    tenant: str
    run_id: UUID
    workflow: str
    key: str
    scope: str
    attempt: int
    fence: int
    title: str
    message: str
    form: Mapping[str, Any] | None
    asked: tuple[Asked, ...]
    quorum: int
    four_eyes: bool
    starter: str
    upstream: Any
    timeout: timedelta


def open_request(new: NewRequest) -> bool:
    """Store the request and close older rounds of the same gate; one statement, by itself.

    Safe to repeat. False, and nothing is stored: the attempt no longer holds the step (the run
    was cancelled, the lease was lost), so nobody must be asked.
    """
    engine.crash_point("ask:before")
    try:
        with engine.Unit("ask_within") if connection.in_atomic_block else nullcontext():
            statements.fetch_prepared(_ASK, _values(new))
    except DatabaseError as error:
        if getattr(error.__cause__, "sqlstate", None) != _NOT_HELD:
            raise
        return False
    engine.crash_point("ask:after")
    return True


_NOT_HELD = "AP001"
_ASK = (
    "SELECT approvals_ask(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s::jsonb, %s, %s, %s,"
    " %s::jsonb, %s, %s::jsonb)"
)


def _values(new: NewRequest) -> list[Any]:
    asked = [[one.who, one.tier, one.after.total_seconds()] for one in new.asked]
    return [
        new_request_id(),
        new.tenant,
        new.run_id,
        new.workflow,
        new.key,
        new.scope,
        new.attempt,
        new.fence,
        new.title,
        new.message,
        None if new.form is None else statements.dumps(new.form),
        new.quorum,
        new.four_eyes,
        new.starter,
        None if new.upstream is None else statements.dumps(new.upstream),
        new.timeout,
        statements.dumps(asked),
    ]


def on_gate_closed(run_id: UUID, payload: Mapping[str, Any]) -> None:
    """A gate's wait is over: close its request accordingly. Safe to repeat.

    ``payload``: ``{step, scope, attempt, reason}``, the reason one of ``timeout``, ``cancelled``,
    ``decided``. After a decision the row is closed already, by the person's own transaction.
    """
    state, by = _CLOSED_FOR[payload["reason"]]
    gate = Request.objects.of_step(run_id, key=payload["step"], scope=payload["scope"])
    if gate.filter(attempt=payload["attempt"]).close(state, by=by):
        logger.info("approval of %s in run %s: %s", payload["step"], run_id, state)


def on_run_ended(run_id: UUID, payload: Mapping[str, Any]) -> None:
    """A run is over: nobody needs to decide anything in it any more. Safe to repeat.

    This news may overtake that of the gate whose expiry ended the run.
    """
    del payload
    for request in Request.objects.filter(run_id=run_id).open():
        row = Request.objects.filter(pk=request.pk)
        if _expired(request):
            row.close(RequestState.EXPIRED, by=SYSTEM_TIMEOUT)
        else:
            row.close(RequestState.CANCELLED, by=SYSTEM_RUN)


def _expired(request: Request) -> bool:
    """Whether the step says that it was the end of the time that answered this request."""
    step = Step.objects.filter(run_id=request.run_id, key=request.key, scope=request.scope)
    said = step.filter(attempt=request.attempt).values_list("output", "error").first()
    output, error = said or (None, None)
    answer = output or (error or {}).get("details") or {}
    return isinstance(answer, dict) and answer.get("by") == SYSTEM_TIMEOUT


def database_now() -> datetime:
    """The instant of the database's clock, constant within a transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT orchestrator_now()")
        instant: datetime = cursor.fetchone()[0]
    return instant
