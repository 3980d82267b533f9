"""Deleting receipts that are old enough; the only place that deletes an effect."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from django.db import connection


@dataclass(frozen=True, slots=True)
class Window:
    """What came of one stretch of the table: how many were deleted, the last id looked at, and
    whether older ones may lie behind it."""

    n_deleted: int
    last_id: int
    more: bool


def forget_effects(keep: timedelta, *, after_id: int, limit: int) -> Window:
    """Delete, among the next ``limit`` effects by id, those that are settled, and whose run ended,
    longer than ``keep`` ago. Ids follow the time of the intent, so the oldest come first."""
    with connection.cursor() as cursor:
        cursor.execute(
            "WITH stretch AS MATERIALIZED (SELECT e.id, e.run_id, e.status, e.intended_at,"
            "   e.settled_at FROM orchestrator_effect e WHERE e.id > %(after)s"
            "   ORDER BY e.id LIMIT %(limit)s),"
            " old AS (SELECT e.id FROM orchestrator_effect e JOIN stretch USING (id)"
            "   JOIN orchestrator_run r ON r.id = e.run_id"
            "   WHERE e.status IN ('applied', 'not_applied', 'given_up')"
            "    AND e.settled_at < orchestrator_now() - %(keep)s::interval"
            "    AND r.finished_at < orchestrator_now() - %(keep)s::interval"
            "   FOR UPDATE OF e SKIP LOCKED),"
            " gone AS (DELETE FROM orchestrator_effect WHERE id IN (SELECT id FROM old)"
            "   RETURNING 1)"
            " SELECT (SELECT count(*) FROM gone), coalesce(max(id), 0),"
            "  coalesce(bool_or(intended_at < orchestrator_now() - %(keep)s::interval), false)"
            "  FROM stretch",
            {"after": after_id, "limit": limit, "keep": f"{keep.total_seconds()} seconds"},
        )
        n_deleted, last_id, more = cursor.fetchone() or (0, 0, False)
    return Window(int(n_deleted), int(last_id), bool(more))
