"""What must hold in the database after a storm, each as one question that finds what breaks it.

Beside ``manage.py verify``, which knows the engine's own rows, these compare with the ledger.
"""

from __future__ import annotations

from io import StringIO
from typing import Any

from django.core.management import CommandError, call_command
from django.db import connection

from tests.drill.replays import replay_all

OVER = "('completed', 'failed', 'cancelled', 'timed_out')"

# Each finds rows of what must not be; the first column says what, the others where.
NOT_ENDED = "a run has not ended"
AGAIN = "a body began after its step was committed as completed"
STALE = "an attempt was claimed after its step had completed"
TWICE = "one attempt ran twice"
UNSEEN = "a step completed whose body nobody saw"  # one with an effect may be looked up instead
DOUBLED = "a step completed twice"
LEFT = "a message is left in the outbox"
UNHEARD = "a signal was accepted and not consumed"

_QUESTIONS: dict[str, str] = {
    NOT_ENDED: f"""
        SELECT id, workflow, state, waiting_for FROM orchestrator_run WHERE state NOT IN {OVER}""",
    AGAIN: """
        SELECT l.run, l.step || l.scope, l.fence, l.began_at - pg_xact_commit_timestamp(e.xid::xid)
          FROM chaos_ledger l
          JOIN orchestrator_event e ON e.run_id = l.run AND e.type = 'step.completed'
           AND e.step = l.step || l.scope
         WHERE l.began_at > pg_xact_commit_timestamp(e.xid::xid)""",
    STALE: """
        SELECT l.run, l.step || l.scope, l.fence, s.fence
          FROM chaos_ledger l
          JOIN orchestrator_step s ON s.run_id = l.run AND s.key = l.step AND s.scope = l.scope
         WHERE s.state = 'completed' AND l.fence > s.fence""",
    TWICE: """
        SELECT run, step || scope, fence, count(*) FROM chaos_ledger
         GROUP BY run, step, scope, fence HAVING count(*) > 1""",
    UNSEEN: """
        SELECT s.run_id, s.key || s.scope, s.fence FROM orchestrator_step s
         WHERE s.state = 'completed' AND s.type = 'tool' AND s.items_total IS NULL
           AND NOT EXISTS (SELECT 1 FROM orchestrator_effect e WHERE e.step_id = s.id)
           AND NOT EXISTS (SELECT 1 FROM chaos_ledger l WHERE l.run = s.run_id AND l.step = s.key
                           AND l.scope = s.scope AND l.fence = s.fence)""",
    DOUBLED: """
        SELECT run_id, step, count(*) FROM orchestrator_event WHERE type = 'step.completed'
         GROUP BY run_id, step HAVING count(*) > 1""",
    LEFT: """
        SELECT run_id, topic, attempts, error FROM orchestrator_outbox""",
    UNHEARD: """
        SELECT s.run_id, s.name FROM orchestrator_signal s
          JOIN orchestrator_run r ON r.id = s.run_id
         WHERE r.state = 'completed' AND s.consumed_by IS NULL""",
}


def breaches() -> list[str]:
    """Everything that does not hold, with the first few places of each; empty when all is well."""
    return [*found(*_QUESTIONS), *what_verify_finds(), *replay_all()]


def found(*names: str, limit: int = 5) -> list[str]:
    """What these questions find (see ``_QUESTIONS``), with the first few places of each."""
    said: list[str] = []
    with connection.cursor() as cursor:
        for name in names:
            cursor.execute(_QUESTIONS[name])
            rows = cursor.fetchall()
            if rows:
                places = "; ".join(" ".join(map(str, row)) for row in rows[:limit])
                said.append(f"{name} ({len(rows)}): {places}")
    return said


def what_verify_finds() -> list[str]:
    """Each violation that ``manage.py verify`` names among all runs."""
    said = StringIO()
    try:
        call_command("verify", limit=1_000_000, stdout=StringIO(), stderr=said)
    except CommandError as error:
        return [f"manage.py verify: {error}\n{said.getvalue()}"]
    return []


def count(sql: str, params: list[Any] | None = None) -> int:
    """One number."""
    with connection.cursor() as cursor:
        cursor.execute(sql, params or [])
        number: int = cursor.fetchone()[0]
    return number
