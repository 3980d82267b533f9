"""Children that are undone with their parent, by hand-written SQL."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from django.db import connection


@dataclass(frozen=True, slots=True)
class ChildRun:
    """A child run of a step. ``step_id`` is the row of the step, or item, that it belongs to.
    ``finished``: it has come to its end; it may be undone since."""

    id: UUID
    step_id: UUID
    state: str
    compensation: str
    finished: bool

    @property
    def stands(self) -> bool:
        """Whether what it did stands, as far as its end says: it completed, and is to be undone."""
        return self.state == "completed" or (self.state == "compensating" and self.finished)

    @property
    def moves(self) -> bool:
        """Whether it is at work, on its way or on its own undoing."""
        return self.state not in _OVER


_OVER = frozenset({"completed", "failed", "cancelled", "timed_out"})


def children_of(run_id: UUID, key: str) -> list[ChildRun]:
    """The children of a step, and of its items, in the order in which they began."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.id, c.parent_step, c.state, c.compensation, c.finished_at IS NOT NULL"
            " FROM orchestrator_step s"
            " JOIN orchestrator_run c ON c.parent_id = s.run_id AND c.parent_step = s.id"
            " WHERE s.run_id = %s AND s.key = %s ORDER BY c.id",
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
