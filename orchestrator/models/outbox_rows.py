"""Taking messages out of the outbox by hand-written SQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson
from django.db import connection

from orchestrator.crash import crash_point
from orchestrator.models.statements import dumps


@dataclass(frozen=True, slots=True)
class Message:
    """One message, locked by this transaction and deleted with it."""

    topic: str
    run_id: UUID
    payload: dict[str, Any]


def due(limit: int) -> list[int]:
    """Ids of messages that are due, oldest first."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id FROM orchestrator_outbox WHERE due_at <= orchestrator_now()"
            " ORDER BY due_at LIMIT %s",
            [limit],
        )
        return [number for (number,) in cursor.fetchall()]


def take(number: int) -> Message | None:
    """Delete the message in this transaction and return it; None when another one has it."""
    with connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM orchestrator_outbox WHERE id = ("
            "  SELECT id FROM orchestrator_outbox WHERE id = %s FOR UPDATE SKIP LOCKED)"
            " RETURNING topic, run_id, payload",
            [number],
        )
        row = cursor.fetchone()
    return None if row is None else Message(row[0], row[1], orjson.loads(row[2]))


def put_off(number: int, error: str) -> None:
    """Try again later: 1 s, doubled each time, at most five minutes."""
    crash_point("put_off:before")
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE orchestrator_outbox SET attempts = attempts + 1, error = %s,"
            " due_at = orchestrator_now() + least(power(2, least(attempts, 9)), 300)"
            "   * interval '1 second' WHERE id = %s",
            [error[:500], number],
        )


def post(topic: str, run_id: UUID, payload: dict[str, Any]) -> int:
    """A message in the outbox, sent once this transaction has committed; its id."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO orchestrator_outbox (topic, run_id, payload, created_at, due_at, attempts,"
            " error) SELECT %s, %s, %s::jsonb, t, t, 0, '' FROM orchestrator_now() t RETURNING id",
            [topic, run_id, dumps(payload)],
        )
        number: int = cursor.fetchone()[0]
    return number
