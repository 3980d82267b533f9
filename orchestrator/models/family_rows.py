"""Children that are undone with their parent, by hand-written SQL."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from django.db import connection


@dataclass(frozen=True, slots=True)
class ChildRun:
    """A child run of a step. ``step_id`` is the row of the step, or item, that it belongs to."""

    id: UUID
    step_id: UUID
    state: str
    compensation: str


def finished_children(run_id: UUID, key: str) -> list[ChildRun]:
    """The completed children of a finished step, of its items too: each has done something.

    One that is being undone at the moment is among them.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.id, c.parent_step, c.state, c.compensation FROM orchestrator_step s"
            " JOIN orchestrator_run c ON c.parent_id = s.run_id AND c.parent_step = s.id"
            " WHERE s.run_id = %s AND s.key = %s AND (c.state = 'completed'"
            "   OR (c.state = 'compensating' AND c.finished_at IS NOT NULL))"
            " ORDER BY c.id",
            [run_id, key],
        )
        return [ChildRun(*row) for row in cursor.fetchall()]


def is_asked(run_id: UUID, undo_step: UUID) -> bool:
    """Whether some child has yet to hear that it is to be undone."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT 1 FROM orchestrator_outbox WHERE topic = 'child.undo'"
            " AND run_id = %s AND payload ->> 'undo_step' = %s)",
            [run_id, str(undo_step)],
        )
        row = cursor.fetchone()
    return bool(row and row[0])
