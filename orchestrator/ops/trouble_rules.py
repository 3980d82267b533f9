"""Troubles that are no defect and that a person has to deal with: gave up, in doubt, not undone."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import connection

from orchestrator.ops.sighting import Sighting

SHOWN = 20
MAX_FOUND = 500
LETTER_DAYS = 7
"""A dead letter that nobody answered for so long is history, and no alert any more."""

# Letters are counted by what an operator retries together; at most so many are looked at. A run
# that is over and wholly undone goes on no more: its letters ask nothing of anybody.
_LETTERS = """
SELECT tenant, workflow, service, reason, count(*), min(created_at), max(created_at),
       (array_agg(id ORDER BY id DESC))[1:%(shown)s],
       (array_agg(run_id::text ORDER BY id DESC))[1:%(shown)s]
  FROM (SELECT d.* FROM orchestrator_deadletter d JOIN orchestrator_run r ON r.id = d.run_id
         WHERE d.retried_at IS NULL AND d.settled_at IS NULL
           AND d.reason NOT IN ('compensation', 'irreversible')
           AND d.created_at > orchestrator_now() - make_interval(days => %(days)s)
           AND NOT (r.compensation = 'full'
                    AND r.state IN ('failed', 'cancelled', 'timed_out', 'completed'))
         LIMIT 20000) d
 GROUP BY tenant, workflow, service, reason ORDER BY max(id) DESC LIMIT %(limit)s
"""
_NOT_UNDONE = """
SELECT d.run_id, d.tenant, d.workflow, s.key || s.scope, d.reason, d.error ->> 'message'
  FROM orchestrator_deadletter d JOIN orchestrator_step s ON s.id = d.step_id
 WHERE d.retried_at IS NULL AND d.settled_at IS NULL
   AND d.reason IN ('compensation', 'irreversible')
   AND d.created_at > orchestrator_now() - make_interval(days => %(days)s)
 ORDER BY d.id DESC LIMIT %(limit)s
"""
# An idempotent tool that will be called again is in doubt for a moment: that is not for a person.
_IN_DOUBT = """
SELECT e.tenant, e.idempotency_key, e.run_id, s.key || s.scope, e.tool, e.reason, r.state,
       to_char(e.intended_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS')
  FROM orchestrator_effect e JOIN orchestrator_step s ON s.id = e.step_id
  JOIN orchestrator_run r ON r.id = e.run_id
 WHERE e.status IN ('intended', 'in_doubt')
   AND ((s.state = 'waiting' AND s.waiting_for = 'review')
     OR r.state IN ('completed', 'failed', 'cancelled', 'timed_out'))
 ORDER BY e.intended_at DESC LIMIT %(limit)s
"""


def dead_letters() -> list[Sighting]:
    """Steps that gave up and that nobody retried, by tenant, workflow, service and reason."""
    return [_letters(*row) for row in _rows(_LETTERS)]


def _letters(  # noqa: PLR0913 - the columns of one row
    tenant: str,
    workflow: str,
    service: str,
    reason: str,
    count: int,
    first: Any,
    last: Any,
    letters: list[int],
    runs: list[str],
) -> Sighting:
    at = f" (service {service})" if service else ""
    steps, wait = ("1 step", "waits") if count == 1 else (f"{count} steps", "wait")
    return Sighting(
        key=f"{tenant}:{workflow}:{service}:{reason}",
        title=f"{steps} of {workflow}{at} gave up ({reason}) and {wait} to be retried or settled",
        detail={
            "workflow": workflow,
            "service": service,
            "reason": reason,
            "open": count,
            "first_at": first.isoformat(),
            "last_at": last.isoformat(),
            "newest_letters": letters,
            "newest_runs": list(dict.fromkeys(runs)),
            "runbook": "dead-letters",
        },
        severity="critical" if reason == "quarantined" else "warning",
        tenant=tenant,
        run_id=UUID(runs[0]),
    )


def not_undone() -> list[Sighting]:
    """Runs of which something was done and could not be undone."""
    return [_left(*row) for row in _rows(_NOT_UNDONE)]


def _left(
    run_id: UUID, tenant: str, workflow: str, step: str, reason: str, message: str
) -> Sighting:
    words = "its compensation gave up" if reason == "compensation" else "it is irreversible"
    return Sighting(
        key=f"{run_id}:{step}",
        title=f"Run {run_id} of {workflow} is not undone whole: {step} stands, {words}",
        detail={
            "workflow": workflow,
            "step": step,
            "reason": reason,
            "error": message,
            "runbook": "compensation-failed",
        },
        severity="critical",
        tenant=tenant,
        run_id=run_id,
    )


def in_doubt() -> list[Sighting]:
    """Effects of which nobody knows whether they happened, and that no attempt will settle."""
    return [_doubt(*row) for row in _rows(_IN_DOUBT)]


def _doubt(  # noqa: PLR0913 - the columns of one row
    tenant: str,
    key: str,
    run_id: UUID,
    step: str,
    tool: str,
    reason: str,
    state: str,
    since: str,
) -> Sighting:
    return Sighting(
        key=f"{tenant}:{key}",
        title=f"Effect {key} ({tool}, step {step}) is in doubt: find out whether it happened",
        detail={
            "effect_key": key,
            "tool": tool,
            "step": step,
            "run_state": state,
            "reason": reason,
            "intended_at": f"{since} UTC",
            "runbook": "effect-in-doubt",
        },
        severity="critical",
        tenant=tenant,
        run_id=run_id,
    )


def _rows(sql: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, {"limit": MAX_FOUND, "shown": SHOWN, "days": LETTER_DAYS})
        found: list[tuple[Any, ...]] = cursor.fetchall()
    return found
