"""Guarded moves of steps beside the decision itself; call with the run locked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import connection

from orchestrator.clock import new_id
from orchestrator.core.compiled import StepPlan
from orchestrator.crash import crash_point
from orchestrator.models.statements import dumps, execute


def mark_dispatched(run_id: UUID, names: Sequence[tuple[str, str]]) -> None:
    """A message is on its way (again) for these READY steps, ``(key, scope)``."""
    execute(
        "UPDATE orchestrator_step s SET dispatched_at = orchestrator_now(),"
        " n_dispatched = s.n_dispatched + 1"
        " FROM unnest(%s::text[], %s::text[]) AS x(k, c)"
        " WHERE s.run_id = %s AND s.key = x.k AND s.scope = x.c AND s.state = 'ready'",
        [[key for key, _ in names], [scope for _, scope in names], run_id],
    )


def ready_again(run_id: UUID, positions: list[int]) -> None:
    """Steps that failed, or that a repair reopened, are READY again, with fresh retries and rounds;
    their dead letters are answered."""
    execute(
        "WITH again AS (UPDATE orchestrator_step SET state = 'ready',"
        "  ready_at = orchestrator_now(), error = NULL, n_retries = 0, n_lost = 0, round = 1,"
        "  previous = NULL, finished_at = NULL,"
        "  dispatched_at = NULL, n_dispatched = 0"
        "  WHERE run_id = %s AND position = ANY(%s) AND scope = ''"
        "  AND state IN ('failed', 'timed_out', 'blocked') RETURNING id)"
        " UPDATE orchestrator_deadletter d SET retried_at = orchestrator_now()"
        " FROM again WHERE d.step_id = again.id AND d.retried_at IS NULL",
        [run_id, positions],
    )


def excuse(run_id: UUID, positions: list[int]) -> None:
    """Failed steps that are optional count as skipped (their error stays to be seen), and so do
    reopened ones that nothing reaches any more."""
    execute(
        "UPDATE orchestrator_step SET state = 'skipped',"
        " finished_at = coalesce(finished_at, orchestrator_now())"
        " WHERE run_id = %s AND position = ANY(%s) AND scope = ''"
        " AND state IN ('failed', 'timed_out', 'blocked')",
        [run_id, positions],
    )


def insert_failed(*, run_id: UUID, step: StepPlan, error: Any) -> None:
    """A step that failed before it could start (a condition of its own did not hold water); its
    row is there already when a repair had reopened it."""
    execute(
        "INSERT INTO orchestrator_step (id, run_id, key, scope, position, type, queue, state,"
        " error, ready_at, finished_at, waiting_for, waiting_key, why, attempt, n_retries, n_lost,"
        " round, fence, worker, n_dispatched, covered_by, cost_microusd, tokens_in, tokens_out,"
        " model)"
        " SELECT %s, %s, %s, '', %s, %s, %s, 'failed', %s::jsonb, t, t, '', '', '', 0, 0, 0, 1, 0,"
        " '', 0, '', 0, 0, 0, '' FROM orchestrator_now() t"
        " ON CONFLICT (run_id, key, scope) DO UPDATE SET state = 'failed',"
        "  error = excluded.error, finished_at = excluded.finished_at"
        "  WHERE orchestrator_step.state = 'blocked'",
        [new_id(), run_id, step.key, step.position, step.type, step.queue, dumps(error)],
    )


def move_finished(run_id: UUID, positions: list[int], *, old: str, new: str) -> None:
    """Finished steps whose compensation starts (``completed`` to ``compensating``) or succeeded."""
    execute(
        "UPDATE orchestrator_step SET state = %s"
        " WHERE run_id = %s AND position = ANY(%s) AND scope = '' AND state = %s",
        [new, run_id, positions, old],
    )


def cover(run_id: UUID, owner: int, fallback_key: str, output: Any) -> None:
    """The fallback's output stands for its owner's, which keeps its own state."""
    execute(
        "UPDATE orchestrator_step SET output = %s::jsonb, covered_by = %s"
        " WHERE run_id = %s AND position = %s AND scope = ''",
        [dumps(output), fallback_key, run_id, owner],
    )


@dataclass(frozen=True, slots=True)
class CancelledStep:
    """A step that was cancelled, with what has to be told about it."""

    id: UUID
    key: str
    scope: str
    attempt: int
    waited_for: str


def cancel_steps(
    run_id: UUID,
    *,
    positions: list[int],
    item_keys: list[str],
    running_item_keys: list[str],
    doubted_item_keys: list[str],
) -> list[CancelledStep]:
    """End plain steps (whatever their open state) and the open items of for_each steps.

    Items of ``running_item_keys`` lose a running body too: the fence grows, its result is late.
    Items of ``doubted_item_keys`` that wait for a review go on waiting.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "WITH doomed AS ("
            "  SELECT id, waiting_for AS waited_for FROM orchestrator_step"
            "  WHERE run_id = %s AND ("
            "    (position = ANY(%s) AND scope = ''"
            "      AND state IN ('blocked', 'ready', 'running', 'retrying', 'waiting'))"
            "    OR (key = ANY(%s) AND scope <> ''"
            "      AND state IN ('blocked', 'ready', 'retrying', 'waiting')"
            "      AND NOT (waiting_for = 'review' AND key = ANY(%s)))"
            "    OR (key = ANY(%s) AND scope <> '' AND state = 'running'))"
            "  ORDER BY id FOR UPDATE)"
            " UPDATE orchestrator_step s SET state = 'cancelled', finished_at = orchestrator_now(),"
            "  fence = s.fence + 1, lease_until = NULL, timeout_at = NULL, waiting_for = '',"
            "  waiting_key = '', why = ''"
            " FROM doomed d WHERE s.id = d.id"
            " RETURNING s.id, s.key, s.scope, s.attempt, d.waited_for",
            [run_id, positions, item_keys, doubted_item_keys, running_item_keys],
        )
        return [CancelledStep(*row) for row in cursor.fetchall()]


def renew_leases(held: Sequence[tuple[UUID, int]], lease: timedelta) -> set[UUID]:
    """Renew the leases that are still ours, ``(step id, fence)``; the ids renewed.

    A lease never outlives its attempt's time limit. Touches step rows only, and waits for none:
    one that is locked is being moved, or has time until the next round.
    """
    params: list[Any] = [lease, [i for i, _ in held], [f for _, f in held]]
    crash_point("renew:before")
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE orchestrator_step s"
            " SET lease_until = least(orchestrator_now() + %s, s.timeout_at)"
            " FROM (SELECT h.id FROM orchestrator_step h"
            "  JOIN unnest(%s::uuid[], %s::bigint[]) AS x(id, fence)"
            "   ON h.id = x.id AND h.fence = x.fence WHERE h.state = 'running'"
            "  FOR UPDATE OF h SKIP LOCKED) held"
            " WHERE s.id = held.id RETURNING s.id",
            params,
        )
        return {step_id for (step_id,) in cursor.fetchall()}
