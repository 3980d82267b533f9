"""Setting and dropping stored wake-ups; call in the transaction of the move."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from orchestrator.models.statements import execute


def set_timer(run_id: UUID, step_id: UUID, kind: str, due: float | datetime) -> None:
    """A wake-up after ``due`` seconds on the database's clock, or at that instant."""
    is_instant = isinstance(due, datetime)
    execute(
        "INSERT INTO orchestrator_timer (run_id, step_id, kind, fire_at) VALUES (%s, %s, %s,"
        "  coalesce(%s::timestamptz, orchestrator_now() + make_interval(secs => %s)))"
        " ON CONFLICT (step_id, kind) DO UPDATE SET fire_at = excluded.fire_at",
        [run_id, step_id, kind, due if is_instant else None, 0.0 if is_instant else due],
    )


def drop_timers(step_ids: list[UUID]) -> None:
    """Pending wake-ups of steps that no longer wait."""
    execute("DELETE FROM orchestrator_timer WHERE step_id = ANY(%s)", [step_ids])
