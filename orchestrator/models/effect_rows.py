"""Reading effects by hand-written SQL; they are written by sql/apply.sql with the step's move."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import orjson
from django.db import connection

from orchestrator.core.effects import EffectStatus, StoredEffect


def find_effect(tenant: str, key: str, *, step_id: UUID | None) -> StoredEffect | None:
    """What is stored under the key; ``step_id`` is the step that asks (None: it has no row yet)."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT e.status, e.request_hash, e.response,"
            " (s.state = 'running' AND e.fence = s.fence"
            "   OR s.state = 'waiting' AND s.waiting_for = 'review')"
            " AND s.id IS DISTINCT FROM %s,"
            " format('step %%s%%s of run %%s, tool %%s', s.key, s.scope, s.run_id, e.tool),"
            " e.step_id, e.fence,"
            " EXISTS (SELECT 1 FROM orchestrator_step u WHERE u.run_id = s.run_id"
            "   AND u.key = 'undo:' || s.key AND u.scope = s.scope AND u.state = 'completed')"
            " FROM orchestrator_effect e JOIN orchestrator_step s ON s.id = e.step_id"
            " WHERE e.tenant = %s AND e.idempotency_key = %s",
            [step_id, tenant, key],
        )
        row = cursor.fetchone()
    if row is None:
        return None
    response = None if row[2] is None else orjson.loads(row[2])
    return StoredEffect(
        status=EffectStatus(row[0]),
        request_hash=row[1],
        response=response,
        busy=bool(row[3]),
        holder=str(row[4]),
        step=str(row[5]),
        fence=row[6],
        undone=bool(row[7]),
    )


def receipt_of(run_id: UUID, position: int) -> list[Any]:
    """What the plain step's own effect answered; empty when it has no receipt."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT e.response FROM orchestrator_step s JOIN orchestrator_effect e"
            " ON e.step_id = s.id AND e.status = 'applied' AND NOT e.nested"
            " WHERE s.run_id = %s AND s.position = %s AND s.scope = ''"
            " ORDER BY e.settled_at DESC LIMIT 1",
            [run_id, position],
        )
        row = cursor.fetchone()
    return [] if row is None else [None if row[0] is None else orjson.loads(row[0])]


def held_key(step_id: UUID) -> str | None:
    """The key of the step's own effect that it intended and that has no receipt yet. Calls that its
    body made are found again by the body itself."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT idempotency_key FROM orchestrator_effect"
            " WHERE step_id = %s AND status IN ('intended', 'in_doubt') AND NOT nested",
            [step_id],
        )
        row = cursor.fetchone()
    return None if row is None else str(row[0])
