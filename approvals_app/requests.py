"""Opening a request, and closing it when the engine says that its gate is over."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from approvals_app.models import Assignment, Request
from approvals_app.policy import RequestState
from orchestrator import engine
from orchestrator.core.states import RUN_TERMINAL, RunState, StepState
from orchestrator.models import Step

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
    """Store the request and close older rounds of the same gate; its own transaction.

    Safe to repeat. False, and nothing is stored: the attempt no longer holds the step (the run
    was cancelled, the lease was lost), so nobody must be asked.
    """
    with engine.Unit("ask"):
        _close_older_rounds(new)
        _insert(new)
        held = _still_held(new)
        if not held:
            transaction.set_rollback(True)
    return held


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


def _close_older_rounds(new: NewRequest) -> None:
    rounds = Request.objects.of_step(new.run_id, key=new.key, scope=new.scope)
    rounds.filter(attempt__lt=new.attempt).close(RequestState.CANCELLED, by=SYSTEM_RUN)


def _insert(new: NewRequest) -> None:
    now = database_now()
    row = Request(
        tenant=new.tenant,
        run_id=new.run_id,
        workflow=new.workflow,
        key=new.key,
        scope=new.scope,
        attempt=new.attempt,
        title=new.title,
        message=new.message,
        form=new.form,
        quorum=new.quorum,
        four_eyes=new.four_eyes,
        starter=new.starter,
        upstream=new.upstream,
        opened_at=now,
        due_at=now + new.timeout,
    )
    # A second call finds the first one's row; an outdated attempt finds its successor's.
    Request.objects.bulk_create([row], ignore_conflicts=True)
    if Request.objects.filter(pk=row.pk).exists():
        Assignment.objects.bulk_create(
            Assignment(request=row, who=each.who, tier=each.tier, from_at=now + each.after)
            for each in new.asked
        )


def _still_held(new: NewRequest) -> bool:
    """Whether this attempt still runs the step; until the commit no cancel can slip in between.

    Every move of a step writes the run's row, so a share lock on it keeps the step where it is:
    a cancel that came first is seen here, and one that comes later tells ``on_run_ended`` of a
    row that is committed. Own rows first, then the run (the lock order of decisions too).
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT state FROM orchestrator_run WHERE id = %s FOR SHARE", [new.run_id])
        found = cursor.fetchone()
    if found is None or RunState(found[0]) in RUN_TERMINAL:
        return False
    return Step.objects.filter(
        run_id=new.run_id,
        key=new.key,
        scope=new.scope,
        state=StepState.RUNNING,
        fence=new.fence,
    ).exists()


def database_now() -> datetime:
    """The instant of the database's clock, constant within a transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT orchestrator_now()")
        instant: datetime = cursor.fetchone()[0]
    return instant
