"""Evidence: attempts that did not succeed, late results, steps that gave up."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import connection

from orchestrator.models.rows import StepRow
from orchestrator.models.statements import dumps, execute


def record_attempt(row: StepRow, *, outcome: str, error: Any) -> None:
    """Keep an attempt that did not succeed. ``row`` is the step as it was while it ran: by now
    the same worker may have claimed it again."""
    execute(
        "INSERT INTO orchestrator_attempt (step_id, number, round, fence, worker, started_at,"
        " ended_at, outcome, error)"
        " SELECT id, %s, %s, %s, worker, %s, orchestrator_now(), %s, %s::jsonb"
        " FROM orchestrator_step WHERE id = %s",
        [row.attempt, row.round, row.fence, row.started_at, outcome, dumps(error), row.id],
    )


def record_late(step_id: UUID, *, fence: int, worker: str, evidence: Any) -> None:
    """A result that came after its lease was lost: evidence, it changes nothing (SPEC 4.4)."""
    execute(
        "INSERT INTO orchestrator_attempt (step_id, number, round, fence, worker, started_at,"
        " ended_at, outcome, error)"
        " SELECT id, attempt, round, %s, %s, NULL, orchestrator_now(), 'late', %s::jsonb"
        " FROM orchestrator_step WHERE id = %s",
        [fence, worker, dumps(evidence), step_id],
    )


def left_over(run_id: UUID, positions: list[int]) -> None:
    """Irreversible steps of a run that failed: each is a task for a person."""
    execute(
        "INSERT INTO orchestrator_deadletter (step_id, run_id, tenant, workflow, service, region,"
        " reason, error, attempts, created_at)"
        " SELECT s.id, s.run_id, r.tenant, r.workflow, '', split_part(s.queue, '@', 2),"
        " 'irreversible',"
        " jsonb_build_object('class', 'permanent', 'message',"
        "   'the run failed and this step cannot be undone: a person has to settle it'),"
        " s.attempt, orchestrator_now() FROM orchestrator_step s"
        " JOIN orchestrator_run r ON r.id = s.run_id"
        " WHERE s.run_id = %s AND s.position = ANY(%s) AND s.scope = ''"
        " AND NOT EXISTS (SELECT 1 FROM orchestrator_deadletter d"
        "   WHERE d.step_id = s.id AND d.reason = 'irreversible')",
        [run_id, positions],
    )


def dead_letter(step_id: UUID, *, service: str, reason: str, error: Any) -> None:
    """The step gave up: list it, with its reason and the attempts it took."""
    execute(
        "INSERT INTO orchestrator_deadletter (step_id, run_id, tenant, workflow, service, region,"
        " reason, error, attempts, created_at) SELECT s.id, s.run_id, r.tenant, r.workflow, %s,"
        " split_part(s.queue, '@', 2), %s, %s::jsonb, s.attempt,"
        " orchestrator_now() FROM orchestrator_step s JOIN orchestrator_run r ON r.id = s.run_id"
        " WHERE s.id = %s",
        [service, reason, dumps(error), step_id],
    )


def settle_letter(letter_id: int, *, actor: str, reason: str) -> bool:
    """A person closes an open dead letter by hand; False when it is closed already."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE orchestrator_deadletter SET settled_at = orchestrator_now(), settled_by = %s,"
            " settlement = %s WHERE id = %s AND retried_at IS NULL AND settled_at IS NULL",
            [actor, reason, letter_id],
        )
        return bool(cursor.rowcount == 1)
