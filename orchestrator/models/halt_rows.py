"""Pausing a run that nobody can decide about: guarded, and with its line of history."""

from __future__ import annotations

from uuid import UUID

from orchestrator.core.errors import InvariantBroken
from orchestrator.models.statements import dumps, fetch_prepared


def lock_open(run_id: UUID) -> tuple[int, bytes] | None:
    """Version and compact state of a run that is neither over nor paused, under its row lock; None
    when it is, or when somebody else holds it."""
    row = fetch_prepared(
        "SELECT version, compact FROM orchestrator_run WHERE id = %s"
        " AND state IN ('pending', 'running', 'waiting') FOR UPDATE SKIP LOCKED",
        [run_id],
    )
    return None if row is None else (row[0], bytes(row[1]))


def pause(run_id: UUID, version: int, compact: bytes, *, reason: str) -> None:
    """The run stands paused; its working time stops, as with any pause."""
    row = fetch_prepared(
        "WITH r AS (UPDATE orchestrator_run r SET state = 'paused', waiting_for = '', compact = %s,"
        "  version = version + 1, next_seq = next_seq + 1, updated_at = t,"
        "  worked = CASE WHEN working_since IS NULL THEN worked"
        "    ELSE worked + (t - working_since) END,"
        "  working_since = NULL,"
        "  deadline_at = CASE WHEN time_is_wall THEN deadline_at END"
        "  FROM orchestrator_now() t WHERE id = %s AND version = %s"
        "  AND state IN ('pending', 'running', 'waiting') RETURNING id, next_seq - 1 AS seq, t)"
        " INSERT INTO orchestrator_event (run_id, seq, type, step, payload, actor, at)"
        " SELECT id, seq, 'run.paused', '', %s::jsonb, 'system:halting', t FROM r RETURNING seq",
        [compact, run_id, version, dumps({"reason": reason})],
    )
    if row is None:
        raise InvariantBroken(f"run {run_id} was not halted at version {version}")
