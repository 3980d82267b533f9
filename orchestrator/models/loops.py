"""Rows of for_each items; call with the run locked, in the decision's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db import connection

from orchestrator.clock import new_id
from orchestrator.core.compiled import StepPlan
from orchestrator.core.decision import Ref
from orchestrator.models.statements import dumps, execute


def insert_items(run_id: UUID, step: StepPlan, items: Sequence[Any]) -> None:
    """Rows for all items of a for_each, BLOCKED until they are released.

    A for_each that is tried again starts anew: rows of the first try are taken over.
    """
    ids = [new_id() for _ in items]
    execute(
        "INSERT INTO orchestrator_step (id, run_id, key, scope, position, index, type, queue,"
        " state, item, ready_at, waiting_for, waiting_key, why, attempt, n_retries, n_lost,"
        " round, fence, worker, n_dispatched, covered_by, cost_microusd, tokens_in, tokens_out,"
        " model, gates)"
        " SELECT i, %s, %s, '[' || (n - 1) || ']', %s, n - 1, %s, %s, 'blocked', v::jsonb,"
        " orchestrator_now(), '', '', '', 0, 0, 0, 1, 0, '', 0, '', 0, 0, 0, '', %s"
        " FROM unnest(%s::uuid[], %s::text[]) WITH ORDINALITY AS x(i, v, n)"
        " ON CONFLICT (run_id, key, scope) DO UPDATE SET state = 'blocked', item = excluded.item,"
        "  output = NULL, error = NULL, n_retries = 0, n_lost = 0, round = 1, previous = NULL,"
        "  fence = orchestrator_step.fence + 1, finished_at = NULL",
        [
            run_id,
            step.key,
            step.position,
            step.type,
            step.queue,
            list(step.gates) or None,
            ids,
            [dumps(item) for item in items],
        ],
    )
    execute(  # a list that is shorter than before: what is beyond it does not count
        "UPDATE orchestrator_step SET state = 'skipped' WHERE run_id = %s AND key = %s"
        " AND index >= %s AND state <> 'skipped'",
        [run_id, step.key, len(ids)],
    )


def completed_items(run_id: UUID, position: int) -> list[int]:
    """The items of a for_each that completed and have not been undone, in order."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT index FROM orchestrator_step WHERE run_id = %s AND position = %s"
            " AND scope <> '' AND state = 'completed' ORDER BY index",
            [run_id, position],
        )
        return [index for (index,) in cursor.fetchall()]


def insert_undo_items(run_id: UUID, undo: StepPlan, indexes: Sequence[int]) -> None:
    """Rows for the compensations of these items, BLOCKED until they are released; each has the
    scope of the item that it undoes, and sees the same item. Those of an earlier try are taken
    over."""
    execute(
        "INSERT INTO orchestrator_step (id, run_id, key, scope, position, index, type, queue,"
        " state, item, ready_at, waiting_for, waiting_key, why, attempt, n_retries, n_lost,"
        " round, fence, worker, n_dispatched, covered_by, cost_microusd, tokens_in, tokens_out,"
        " model, gates)"
        " SELECT x.id, %s, %s, s.scope, %s, s.index, %s, %s, 'blocked', s.item,"
        " orchestrator_now(), '', '', '', 0, 0, 0, 1, 0, '', 0, '', 0, 0, 0, '', %s"
        " FROM unnest(%s::uuid[], %s::int[]) AS x(id, index)"
        " JOIN orchestrator_step s ON s.run_id = %s AND s.position = %s AND s.index = x.index"
        " ON CONFLICT (run_id, key, scope) DO UPDATE SET state = 'blocked',"
        "  output = NULL, error = NULL, n_retries = 0, n_lost = 0, round = 1, previous = NULL,"
        "  fence = orchestrator_step.fence + 1, finished_at = NULL",
        [
            run_id,
            undo.key,
            undo.position,
            undo.type,
            undo.queue,
            list(undo.gates) or None,
            [new_id() for _ in indexes],
            list(indexes),
            run_id,
            undo.undoes,
        ],
    )


def move_items(run_id: UUID, items: Sequence[Ref], *, old: str, new: str) -> None:
    """Completed items of one for_each whose compensation starts, has succeeded, or gave up."""
    if not items:
        return
    position, indexes = items[0].position, [ref.item for ref in items]
    execute(
        "UPDATE orchestrator_step SET state = %s WHERE run_id = %s AND position = %s"
        " AND index = ANY(%s) AND state = %s",
        [new, run_id, position, indexes, old],
    )


def release_items(run_id: UUID, key: str, indexes: list[int], queued: list[int]) -> None:
    """BLOCKED items become READY; those in ``queued`` have a message on its way."""
    execute(
        "UPDATE orchestrator_step SET state = 'ready', ready_at = orchestrator_now(),"
        " dispatched_at = CASE WHEN index = ANY(%s) THEN orchestrator_now() END,"
        " n_dispatched = CASE WHEN index = ANY(%s) THEN 1 ELSE 0 END"
        " WHERE run_id = %s AND key = %s AND index = ANY(%s) AND state = 'blocked'",
        [queued, queued, run_id, key, indexes],
    )


def set_loop_output(run_id: UUID, key: str) -> None:
    """The output of a for_each is the list of its items' outputs, in item order."""
    execute(
        "UPDATE orchestrator_step p SET output = ("
        "  SELECT coalesce(jsonb_agg(CASE WHEN i.state = 'completed' THEN i.output END"
        "    ORDER BY i.index), '[]') FROM orchestrator_step i"
        "  WHERE i.run_id = p.run_id AND i.key = p.key AND i.index < p.items_total)"
        " WHERE p.run_id = %s AND p.key = %s AND p.scope = ''",
        [run_id, key],
    )
