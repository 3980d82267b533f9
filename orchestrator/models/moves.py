"""Writing runs and steps: every statement is guarded by what it expects to find.

``apply_decision`` is the hot path, one statement for a whole decision (sql/apply.sql). The others
are for rarer changes; call them in the same transaction, after it, with the run locked by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import orjson
from django.db import DatabaseError, connection

from orchestrator.clock import new_id
from orchestrator.core.errors import OrchestratorError

_MOVED_ON = "OR001"
_STALE = "OR002"


class MovedOn(OrchestratorError):
    """The run was changed by somebody else since it was read; read again and decide anew."""

    code = "run_moved"


class StaleFence(OrchestratorError):
    """The step is not as expected: its lease was lost, or its state changed. Nothing is written."""

    code = "stale_fence"


@dataclass(slots=True, kw_only=True)
class Write:
    """The arguments of one ``orchestrator_apply`` call; shapes as documented in sql/apply.sql."""

    run_id: UUID
    version: int
    compact: bytes
    state: str
    waiting_for: str = ""
    end: dict[str, Any] | None = None
    subject: dict[str, Any] | None = None
    ready: list[dict[str, Any]] = field(default_factory=list)
    claim: dict[str, Any] | None = None
    events: list[tuple[str, str, dict[str, Any], str]] = field(default_factory=list)
    worker: str = ""
    lease: timedelta = timedelta(seconds=15)


def _dumps(value: Any) -> str:
    return orjson.dumps(value).decode()


_APPLY = (
    "SELECT orchestrator_apply(%s, %s, %s, %s, %s, %s::jsonb, %s::jsonb, %s::jsonb, %s::jsonb,"
    " %s::jsonb, %s, %s)"
)


def apply_decision(write: Write) -> datetime:
    """Write one decision, all or nothing; the database's instant of it.

    Autocommits when no transaction is open. Raises MovedOn or StaleFence when a guard fails; an
    open transaction is then unusable and must be rolled back.
    """
    params: list[Any] = [
        write.run_id,
        write.version,
        write.compact,
        write.state,
        write.waiting_for,
        None if write.end is None else _dumps(write.end),
        None if write.subject is None else _dumps(write.subject),
        _dumps(write.ready) if write.ready else None,
        None if write.claim is None else _dumps(write.claim),
        _dumps(write.events),
        write.worker,
        write.lease,
    ]
    try:
        with connection.cursor() as cursor:
            cursor.execute(_APPLY, params)
            at: datetime = cursor.fetchone()[0]
    except DatabaseError as error:
        state = getattr(error.__cause__, "sqlstate", None)
        if state == _MOVED_ON:
            raise MovedOn(str(error)) from None
        if state == _STALE:
            raise StaleFence(str(error)) from None
        raise
    return at


def insert_run(fields: dict[str, Any], *, time_limit: timedelta, is_wall: bool) -> datetime:
    """The row of a new run at version 0, with its clock started; the instant of its birth.

    ``fields``: the columns id, tenant, blueprint_id, workflow, workflow_version, compact, input,
    context, trigger, started_by, correlation_id, traceparent, parent_id, parent_step, depth.
    """
    names = [*fields, "time_limit", "time_is_wall"]
    marks = ["%s::jsonb" if name in _RUN_JSON else "%s" for name in fields]
    values = [_dumps(v) if name in _RUN_JSON else v for name, v in fields.items()]
    sql = (
        f"INSERT INTO orchestrator_run ({', '.join(names)}, state, waiting_for, version, next_seq,"  # noqa: S608 - constant column names
        " outcome, warnings, cost_microusd, cost_unknown, tokens_in, tokens_out, worked,"
        " created_at, updated_at, working_since, deadline_at)"
        f" SELECT {', '.join(marks)}, %s, %s, 'pending', '', 0, 1, '', '[]', 0, false, 0, 0,"
        " interval '0', t, t, t, t + %s FROM orchestrator_now() t RETURNING created_at"
    )
    with connection.cursor() as cursor:
        params: list[Any] = [*values, time_limit, is_wall, time_limit]
        cursor.execute(sql, params)
        at: datetime = cursor.fetchone()[0]
    return at


_RUN_JSON = frozenset({"input", "context", "trigger"})


def insert_items(
    *, run_id: UUID, key: str, position: int, kind: str, queue: str, items: Sequence[Any]
) -> None:
    """Rows for all items of a for_each, BLOCKED until they are released."""
    ids = [new_id() for _ in items]
    _execute(
        "INSERT INTO orchestrator_step (id, run_id, key, scope, position, index, type, queue,"
        " state, item, ready_at, waiting_for, waiting_key, why, attempt, n_retries, n_lost,"
        " round, fence, worker, n_dispatched, covered_by, cost_microusd, tokens_in, tokens_out,"
        " model)"
        " SELECT i, %s, %s, '[' || (n - 1) || ']', %s, n - 1, %s, %s, 'blocked', v::jsonb,"
        " orchestrator_now(), '', '', '', 0, 0, 0, 1, 0, '', 0, '', 0, 0, 0, ''"
        " FROM unnest(%s::uuid[], %s::text[]) WITH ORDINALITY AS x(i, v, n)",
        [run_id, key, position, kind, queue, ids, [_dumps(item) for item in items]],
    )


def release_items(run_id: UUID, key: str, indexes: list[int], queued: list[int]) -> None:
    """BLOCKED items become READY; those in ``queued`` have a message on its way."""
    _execute(
        "UPDATE orchestrator_step SET state = 'ready', ready_at = orchestrator_now(),"
        " dispatched_at = CASE WHEN index = ANY(%s) THEN orchestrator_now() END,"
        " n_dispatched = CASE WHEN index = ANY(%s) THEN 1 ELSE 0 END"
        " WHERE run_id = %s AND key = %s AND index = ANY(%s) AND state = 'blocked'",
        [queued, queued, run_id, key, indexes],
    )


def mark_dispatched(run_id: UUID, names: Sequence[tuple[str, str]]) -> None:
    """A message is on its way (again) for these READY steps, ``(key, scope)``."""
    _execute(
        "UPDATE orchestrator_step s SET dispatched_at = orchestrator_now(),"
        " n_dispatched = s.n_dispatched + 1"
        " FROM unnest(%s::text[], %s::text[]) AS x(k, c)"
        " WHERE s.run_id = %s AND s.key = x.k AND s.scope = x.c AND s.state = 'ready'",
        [[key for key, _ in names], [scope for _, scope in names], run_id],
    )


def ready_again(run_id: UUID, positions: list[int]) -> None:
    """Failed steps that had paused their run are READY again, with fresh retries."""
    _execute(
        "UPDATE orchestrator_step SET state = 'ready', ready_at = orchestrator_now(), error = NULL,"
        " n_retries = 0, n_lost = 0, finished_at = NULL, dispatched_at = NULL, n_dispatched = 0"
        " WHERE run_id = %s AND position = ANY(%s) AND scope = ''"
        " AND state IN ('failed', 'timed_out')",
        [run_id, positions],
    )


def insert_failed(
    *, run_id: UUID, step_id: UUID, key: str, position: int, kind: str, queue: str, error: Any
) -> None:
    """A step that failed before it could start (a condition of its own did not hold water)."""
    _execute(
        "INSERT INTO orchestrator_step (id, run_id, key, scope, position, type, queue, state,"
        " error, ready_at, finished_at, waiting_for, waiting_key, why, attempt, n_retries, n_lost,"
        " round, fence, worker, n_dispatched, covered_by, cost_microusd, tokens_in, tokens_out,"
        " model)"
        " SELECT %s, %s, %s, '', %s, %s, %s, 'failed', %s::jsonb, t, t, '', '', '', 0, 0, 0, 1, 0,"
        " '', 0, '', 0, 0, 0, '' FROM orchestrator_now() t",
        [step_id, run_id, key, position, kind, queue, _dumps(error)],
    )


def cover(run_id: UUID, owner: int, fallback_key: str, output: Any) -> None:
    """The fallback's output stands for its owner's, which keeps its own state."""
    _execute(
        "UPDATE orchestrator_step SET output = %s::jsonb, covered_by = %s"
        " WHERE run_id = %s AND position = %s AND scope = ''",
        [_dumps(output), fallback_key, run_id, owner],
    )


def set_loop_output(run_id: UUID, key: str) -> None:
    """The output of a for_each is the list of its items' outputs, in item order."""
    _execute(
        "UPDATE orchestrator_step p SET output = ("
        "  SELECT coalesce(jsonb_agg(CASE WHEN i.state = 'completed' THEN i.output END"
        "    ORDER BY i.index), '[]') FROM orchestrator_step i"
        "  WHERE i.run_id = p.run_id AND i.key = p.key AND i.index IS NOT NULL)"
        " WHERE p.run_id = %s AND p.key = %s AND p.scope = ''",
        [run_id, key],
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
    run_id: UUID, *, positions: list[int], item_keys: list[str], running_item_keys: list[str]
) -> list[CancelledStep]:
    """End plain steps (whatever their open state) and the open items of for_each steps.

    Items of ``running_item_keys`` lose a running body too: the fence grows, its result is late.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "WITH doomed AS ("
            "  SELECT id, waiting_for AS waited_for FROM orchestrator_step"
            "  WHERE run_id = %s AND ("
            "    (position = ANY(%s) AND scope = ''"
            "      AND state IN ('ready', 'running', 'retrying', 'waiting'))"
            "    OR (key = ANY(%s) AND scope <> ''"
            "      AND state IN ('blocked', 'ready', 'retrying', 'waiting'))"
            "    OR (key = ANY(%s) AND scope <> '' AND state = 'running'))"
            "  ORDER BY id FOR UPDATE)"
            " UPDATE orchestrator_step s SET state = 'cancelled', finished_at = orchestrator_now(),"
            "  fence = s.fence + 1, lease_until = NULL, timeout_at = NULL, waiting_for = '',"
            "  waiting_key = '', why = ''"
            " FROM doomed d WHERE s.id = d.id"
            " RETURNING s.id, s.key, s.scope, s.attempt, d.waited_for",
            [run_id, positions, item_keys, running_item_keys],
        )
        return [CancelledStep(*row) for row in cursor.fetchall()]


def set_timer(run_id: UUID, step_id: UUID, kind: str, due: float | datetime) -> None:
    """A wake-up after ``due`` seconds on the database's clock, or at that instant."""
    is_instant = isinstance(due, datetime)
    _execute(
        "INSERT INTO orchestrator_timer (run_id, step_id, kind, fire_at) VALUES (%s, %s, %s,"
        "  coalesce(%s::timestamptz, orchestrator_now() + make_interval(secs => %s)))"
        " ON CONFLICT (step_id, kind) DO UPDATE SET fire_at = excluded.fire_at",
        [run_id, step_id, kind, due if is_instant else None, 0.0 if is_instant else due],
    )


def drop_timers(step_ids: list[UUID]) -> None:
    """Pending wake-ups of steps that no longer wait."""
    _execute("DELETE FROM orchestrator_timer WHERE step_id = ANY(%s)", [step_ids])


def drop_run_timers(run_id: UUID) -> None:
    """A run that is over wakes nothing."""
    _execute("DELETE FROM orchestrator_timer WHERE run_id = %s", [run_id])


def record_attempt(step_id: UUID, *, outcome: str, error: Any) -> None:
    """Keep an attempt that did not succeed, as the step row shows it at this moment."""
    _execute(
        "INSERT INTO orchestrator_attempt (step_id, number, round, fence, worker, started_at,"
        " ended_at, outcome, error)"
        " SELECT id, attempt, round, fence, worker, started_at, orchestrator_now(), %s, %s::jsonb"
        " FROM orchestrator_step WHERE id = %s",
        [outcome, _dumps(error), step_id],
    )


def record_late(step_id: UUID, *, fence: int, worker: str, evidence: Any) -> None:
    """A result that came after its lease was lost: evidence, it changes nothing (SPEC 4.4)."""
    _execute(
        "INSERT INTO orchestrator_attempt (step_id, number, round, fence, worker, started_at,"
        " ended_at, outcome, error)"
        " SELECT id, attempt, round, %s, %s, NULL, orchestrator_now(), 'late', %s::jsonb"
        " FROM orchestrator_step WHERE id = %s",
        [fence, worker, _dumps(evidence), step_id],
    )


def dead_letter(step_id: UUID, *, service: str, reason: str, error: Any) -> None:
    """The step gave up: list it, with its reason and the attempts it took."""
    _execute(
        "INSERT INTO orchestrator_deadletter (step_id, run_id, tenant, workflow, service, reason,"
        " error, attempts, created_at)"
        " SELECT s.id, s.run_id, r.tenant, r.workflow, %s, %s, %s::jsonb, s.attempt,"
        " orchestrator_now() FROM orchestrator_step s JOIN orchestrator_run r ON r.id = s.run_id"
        " WHERE s.id = %s",
        [service, reason, _dumps(error), step_id],
    )


def post(topic: str, run_id: UUID, payload: dict[str, Any]) -> int:
    """A message in the outbox, sent once this transaction has committed; its id."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO orchestrator_outbox (topic, run_id, payload, created_at, due_at, attempts,"
            " error) SELECT %s, %s, %s::jsonb, t, t, 0, '' FROM orchestrator_now() t RETURNING id",
            [topic, run_id, _dumps(payload)],
        )
        number: int = cursor.fetchone()[0]
    return number


def renew_leases(held: Sequence[tuple[UUID, int]], lease: timedelta) -> set[UUID]:
    """Renew the leases that are still ours, ``(step id, fence)``; the ids renewed.

    A lease never outlives its attempt's time limit. Touches step rows only.
    """
    params: list[Any] = [lease, [i for i, _ in held], [f for _, f in held]]
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE orchestrator_step s"
            " SET lease_until = least(orchestrator_now() + %s, s.timeout_at)"
            " FROM unnest(%s::uuid[], %s::bigint[]) AS x(id, fence)"
            " WHERE s.id = x.id AND s.fence = x.fence AND s.state = 'running' RETURNING s.id",
            params,
        )
        return {step_id for (step_id,) in cursor.fetchall()}


def _execute(sql: str, params: list[Any]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)


def append_event(run_id: UUID, event_type: str, payload: dict[str, Any], actor: str) -> None:
    """A line of history without any other change of the run; call with the run locked.

    The run's version moves on, so that nobody writes from an older reading the same sequence.
    """
    _execute(
        "WITH r AS (UPDATE orchestrator_run SET next_seq = next_seq + 1, version = version + 1,"
        "  updated_at = orchestrator_now() WHERE id = %s RETURNING id, next_seq - 1 AS seq)"
        " INSERT INTO orchestrator_event (run_id, seq, type, step, payload, actor, at)"
        " SELECT id, seq, %s, '', %s::jsonb, %s, orchestrator_now() FROM r",
        [run_id, event_type, _dumps(payload), actor],
    )
