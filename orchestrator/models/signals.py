"""Storing and consuming signals by hand-written SQL; call with the run locked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson
from django.db import connection


@dataclass(frozen=True, slots=True)
class StoredSignal:
    """A signal as stored; ``consumed`` once a waiter took it."""

    id: int
    payload: Any
    payload_hash: str
    actor: str
    consumed: bool


def _one(where: str, params: list[Any]) -> StoredSignal | None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id, payload, payload_hash, actor, consumed_by IS NOT NULL"  # noqa: S608 - callers in this module
            f" FROM orchestrator_signal WHERE {where}",
            params,
        )
        row = cursor.fetchone()
    if row is None:
        return None
    return StoredSignal(row[0], orjson.loads(row[1]), row[2], row[3], row[4])


def find(run_id: UUID, name: str, signal_id: str) -> StoredSignal | None:
    """The signal with this id, consumed or not."""
    return _one("run_id = %s AND name = %s AND signal_id = %s", [run_id, name, signal_id])


def oldest_open(run_id: UUID, name: str, scope: str | None) -> StoredSignal | None:
    """The first signal of this name that nobody has consumed."""
    where, params = "run_id = %s AND name = %s AND consumed_by IS NULL", [run_id, name]
    if scope is not None:
        where += " AND scope = %s"
        params.append(scope)
    return _one(f"{where} ORDER BY id LIMIT 1", params)


def store(  # noqa: PLR0913 - one row; keyword-only
    *,
    run_id: UUID,
    name: str,
    scope: str,
    signal_id: str,
    payload: Any,
    payload_hash: str,
    actor: str,
) -> int:
    """Keep the signal; its row id."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO orchestrator_signal (run_id, name, scope, signal_id, payload,"
            " payload_hash, actor, received_at)"
            " VALUES (%s, %s, %s, %s, %s::jsonb, %s, %s, orchestrator_now()) RETURNING id",
            [run_id, name, scope, signal_id, orjson.dumps(payload).decode(), payload_hash, actor],
        )
        number: int = cursor.fetchone()[0]
    return number


def consume(number: int, step_id: UUID) -> None:
    """The step took it."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE orchestrator_signal SET consumed_by = %s, consumed_at = orchestrator_now()"
            " WHERE id = %s AND consumed_by IS NULL",
            [step_id, number],
        )
