"""Effects of calls that a body makes through its context: intent and receipt, each on its own.

Only whoever holds the step's fence writes them; the run is locked first, by the line of history.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connection

from orchestrator.models.moves import EffectMoved, StaleFence, append_event
from orchestrator.models.statements import dumps


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The attempt that calls: its row and its fence."""

    run_id: UUID
    step_id: UUID
    fence: int


def intend(holder: Holder, *, effect: dict[str, Any], shown: dict[str, Any]) -> None:
    """Store the intent, as ``EffectPlan.intent`` has it. Call in a
    transaction. Raises StaleFence, or EffectMoved when the key is not as it was seen."""
    append_event(holder.run_id, "call.intended", shown, "")
    found = effect.get("seen") or {}
    seen = {f"seen_{name}": found.get(name) for name in ("step", "fence", "status")}
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO orchestrator_effect AS f (tenant, idempotency_key, run_id, step_id, fence,"
            "  tool, request_hash, status, response_hash, external_ref, reason, intended_at,"
            "  nested)"
            " SELECT r.tenant, %(key)s, r.id, s.id, s.fence, %(tool)s, %(hash)s, 'intended',"
            "  '', '', '', orchestrator_now(), true"
            "  FROM orchestrator_step s JOIN orchestrator_run r ON r.id = s.run_id"
            "  WHERE s.id = %(step)s AND s.fence = %(fence)s AND s.state = 'running'"
            " ON CONFLICT (tenant, idempotency_key) DO UPDATE SET"
            "  run_id = excluded.run_id, step_id = excluded.step_id, fence = excluded.fence,"
            "  nested = true, settled_at = NULL,"
            "  status = CASE WHEN %(take)s THEN f.status ELSE 'intended' END,"
            "  intended_at = CASE WHEN %(take)s THEN f.intended_at ELSE excluded.intended_at END"
            " WHERE f.request_hash = excluded.request_hash AND CASE WHEN %(take)s"
            "  THEN f.status IN ('intended', 'in_doubt')"
            "   AND f.step_id = %(seen_step)s AND f.fence = %(seen_fence)s"
            "   AND (f.step_id = excluded.step_id OR f.status = %(seen_status)s)"
            "  ELSE f.status = 'not_applied' END",
            {**seen, **effect, "step": holder.step_id, "fence": holder.fence},
        )
        if cursor.rowcount == 1:
            return
    _require_ours(holder)
    raise EffectMoved(f"effect {effect['key']} moved since it was looked at")


def _require_ours(holder: Holder) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM orchestrator_step WHERE id = %s AND fence = %s AND state = 'running'",
            [holder.step_id, holder.fence],
        )
        if cursor.fetchone() is None:
            raise StaleFence(f"step {holder.step_id} is no longer ours")


def settle(holder: Holder, *, move: dict[str, Any], line: tuple[str, Any]) -> None:
    """Store what became of the call; ``move`` as documented in sql/apply.sql, ``line`` of the
    history. Call in a transaction. Raises StaleFence."""
    append_event(holder.run_id, line[0], line[1], "")
    _require_ours(holder)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE orchestrator_effect SET status = %s, response = %s::jsonb, response_hash = %s,"
            "  external_ref = %s, reason = %s,"
            "  settled_at = CASE WHEN %s = 'in_doubt' THEN NULL ELSE orchestrator_now() END"
            " WHERE run_id = %s AND idempotency_key = %s AND step_id = %s AND fence = %s"
            "  AND status IN ('intended', 'in_doubt')",
            [
                move["status"],
                dumps(move["response"]) if "response" in move else None,
                move.get("response_hash", ""),
                move.get("external_ref", ""),
                move.get("reason", ""),
                move["status"],
                holder.run_id,
                move["key"],
                holder.step_id,
                holder.fence,
            ],
        )
        if cursor.rowcount != 1:
            raise StaleFence(f"effect {move['key']} is no longer held by step {holder.step_id}")
