"""What the sweeps look for: bounded, indexed, level-triggered; nothing is locked by looking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connection


@dataclass(frozen=True, slots=True)
class DueTimer:
    """A timer whose time has come."""

    id: int
    run_id: UUID
    step_id: UUID
    kind: str


def _rows(sql: str, params: list[Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        found: list[tuple[Any, ...]] = cursor.fetchall()
    return found


def due_timers(limit: int) -> list[DueTimer]:
    """Timers that are due, the latest first to have been due."""
    return [
        DueTimer(*row)
        for row in _rows(
            "SELECT id, run_id, step_id, kind FROM orchestrator_timer"
            " WHERE fire_at <= orchestrator_now() ORDER BY fire_at LIMIT %s",
            [limit],
        )
    ]


def is_due(timer_id: int) -> bool:
    """Whether the timer is (still) there and due; call with the run locked."""
    found = _rows(
        "SELECT 1 FROM orchestrator_timer WHERE id = %s AND fire_at <= orchestrator_now()",
        [timer_id],
    )
    return bool(found)


def drop_timer(timer_id: int) -> None:
    """The timer has been applied, or concerns nobody any more."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM orchestrator_timer WHERE id = %s", [timer_id])


def expired_leases(limit: int) -> list[tuple[UUID, UUID, int]]:
    """Running steps whose lease is over: ``(run, step, fence)``. The lease never outlives the
    step's time limit, so one index finds lost workers and time-outs."""
    return [
        (row[0], row[1], row[2])
        for row in _rows(
            "SELECT run_id, id, fence FROM orchestrator_step"
            " WHERE state = 'running' AND lease_until < orchestrator_now()"
            " ORDER BY lease_until LIMIT %s",
            [limit],
        )
    ]


def timed_out(step_id: UUID) -> bool:
    """Whether the step's own time is over (else its worker was lost)."""
    found = _rows(
        "SELECT 1 FROM orchestrator_step WHERE id = %s AND timeout_at <= orchestrator_now()",
        [step_id],
    )
    return bool(found)


def lease_is_over(step_id: UUID, fence: int) -> bool:
    """Whether the lease found before is still over and nobody's; call with the run locked."""
    found = _rows(
        "SELECT 1 FROM orchestrator_step WHERE id = %s AND fence = %s AND state = 'running'"
        " AND lease_until < orchestrator_now()",
        [step_id, fence],
    )
    return bool(found)


def overdue_runs(limit: int) -> list[UUID]:
    """Open runs whose own time is over."""
    return [
        run_id
        for (run_id,) in _rows(
            "SELECT id FROM orchestrator_run WHERE deadline_at <= orchestrator_now()"
            " AND state IN ('pending', 'running', 'waiting', 'paused')"
            " ORDER BY deadline_at LIMIT %s",
            [limit],
        )
    ]


def is_overdue(run_id: UUID) -> bool:
    """Whether the run's time is (still) over; call with the run locked."""
    found = _rows(
        "SELECT 1 FROM orchestrator_run WHERE id = %s AND deadline_at <= orchestrator_now()",
        [run_id],
    )
    return bool(found)
