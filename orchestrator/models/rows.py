"""Reading runs and steps for the engine: plain values by hand-written SQL, no ORM instances."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import orjson
from django.db import connection

from orchestrator.core.endings import Tally
from orchestrator.core.errors import InvariantBroken, Unreadable
from orchestrator.core.snapshot import Snapshot, unpack
from orchestrator.core.states import RUN_TERMINAL, RunState
from orchestrator.crash import crash_point
from orchestrator.models import direct
from orchestrator.models.statements import fetch_all_prepared, fetch_prepared

_RUN_COLUMNS = (
    "r.id, r.tenant, r.blueprint_id, r.workflow, r.workflow_version, r.state, r.version,"
    " r.compact, r.input, r.trigger, r.started_by, r.correlation_id, r.traceparent, r.depth,"
    " r.parent_id, r.parent_step"
)
_STEP_COLUMNS = (
    "s.id, s.key, s.scope, s.position, s.index, s.state, s.waiting_for, s.waiting_key, s.attempt,"
    " s.n_retries, s.n_lost, s.round, s.fence, s.input, s.item, s.previous, s.timeout_at,"
    " s.started_at, s.worker, s.queue, s.gates, s.passed"
)
_WORK = (
    f"SELECT {_RUN_COLUMNS}, {_STEP_COLUMNS} FROM orchestrator_run r"  # noqa: S608 - constant columns
    " JOIN orchestrator_step s ON s.run_id = r.id AND s.key = %s AND s.scope = %s"
    " WHERE r.id = %s"
)
_TAKE = (
    f"SELECT t.taken_at, t.taken_version, t.taken_fence, t.guarded, {_RUN_COLUMNS}, {_STEP_COLUMNS}"  # noqa: S608 - constant columns
    " FROM orchestrator_run r"
    " JOIN orchestrator_step s ON s.run_id = r.id AND s.key = %s AND s.scope = %s"
    " LEFT JOIN LATERAL orchestrator_take(r.id, %s, %s, %s, %s) t ON true"
    " WHERE r.id = %s"
)
_N_RUN = len(_RUN_COLUMNS.split(","))


def _numbered(sql: str) -> bytes:
    """A statement with ``$1``, ``$2`` … for its places."""
    first, *rest = sql.split("%s")
    return "".join([first, *(f"${n}{part}" for n, part in enumerate(rest, 1))]).encode()


def _uuid(text: bytes) -> UUID:
    return UUID(text.decode())


def _instant(text: bytes) -> datetime:
    return datetime.fromisoformat(text.decode())


def _unhexed(text: bytes) -> bytes:
    return bytes.fromhex(text[2:].decode())


def _as_it_is(text: bytes) -> bytes:
    return text


# The same statement straight through libpq, and how its columns are read from their text.
_TAKE_ALONE = direct.DirectStatement(
    b"orchestrator_take",
    _numbered(_TAKE.replace("s.gates", "to_json(s.gates)")),
    places=7,
    binary=frozenset({0, 1, 2, 3, 4, 6}),
)
_TEXT = bytes.decode
_TAKE_READERS: tuple[Callable[[bytes], Any], ...] = (
    *(_instant, int, int, b"t".__eq__),
    *(_uuid, _TEXT, int, _TEXT, int, _TEXT, int, _unhexed, _as_it_is, _as_it_is),
    *(_TEXT, _TEXT, _TEXT, int, _uuid, _uuid),
    *(_uuid, _TEXT, _TEXT, int, int, _TEXT, _TEXT, _TEXT, int, int, int, int, int),
    *(_as_it_is, _as_it_is, _as_it_is, _instant, _instant, _TEXT, _TEXT, orjson.loads, _TEXT),
)


@dataclass(slots=True)
class RunRow:
    """What the engine needs of a run, as read.

    ``tally``: what its history has come to, where a worker wrote all of it since the run's birth.
    """

    id: UUID
    tenant: str
    blueprint_id: int
    workflow: str
    workflow_version: int
    state: RunState
    version: int
    snapshot: Snapshot
    input: Any
    trigger: Any
    started_by: str
    correlation_id: str
    traceparent: str
    depth: int
    parent_id: UUID | None
    parent_step: UUID | None
    tally: Tally | None = None

    @property
    def ended(self) -> bool:
        """Whether the run is over."""
        return self.state in RUN_TERMINAL


@dataclass(slots=True)
class StepRow:
    """What the engine needs of a step, as read."""

    id: UUID
    key: str
    scope: str
    position: int
    index: int | None
    state: str
    waiting_for: str
    waiting_key: str
    attempt: int
    n_retries: int
    n_lost: int
    round: int
    fence: int
    input: Any
    item: Any
    previous: Any
    timeout_at: datetime | None
    started_at: datetime | None
    worker: str
    queue: str
    gates: list[str] | None = None
    passed: str = ""


def _json(value: Any) -> Any:
    return None if value is None else orjson.loads(value)


def _run(row: Sequence[Any]) -> RunRow:
    run = RunRow(*row)
    run.state = RunState(run.state)
    try:
        run.snapshot = unpack(row[7])
    except (ValueError, struct.error) as error:
        raise Unreadable(str(error)) from None
    run.input, run.trigger = _json(run.input), _json(run.trigger)
    return run


def _step(row: Sequence[Any]) -> StepRow:
    step = StepRow(*row)
    step.input, step.item = _json(step.input), _json(step.item)
    step.previous = _json(step.previous)
    return step


def read_run(run_id: UUID) -> RunRow | None:
    """The run as it stands; None when there is none."""
    return _one_run(f"SELECT {_RUN_COLUMNS} FROM orchestrator_run r WHERE r.id = %s", [run_id])  # noqa: S608 - constant columns


def lock_run(run_id: UUID, *, skip_locked: bool = False) -> RunRow | None:
    """The run under its row lock; call inside a transaction. None: no such run, or (with
    ``skip_locked``) somebody else holds it. The lock order starts here: run, then steps by id."""
    wait = " SKIP LOCKED" if skip_locked else ""
    sql = f"SELECT {_RUN_COLUMNS} FROM orchestrator_run r WHERE r.id = %s FOR UPDATE{wait}"  # noqa: S608 - constant columns
    return _one_run(sql, [run_id])


def _one_run(sql: str, params: list[Any]) -> RunRow | None:
    row = fetch_prepared(sql, params)
    return None if row is None else _run(row)


def read_work(run_id: UUID, key: str, scope: str) -> tuple[RunRow, StepRow] | None:
    """A run with one of its steps, in one round trip; None when either does not exist."""
    row = fetch_prepared(_WORK, [key, scope, run_id])
    return None if row is None else (_run(row[:_N_RUN]), _step(row[_N_RUN:]))


def read_step(step_id: UUID) -> StepRow | None:
    """One step by id."""
    rows = _steps("s.id = %s", [step_id])
    return rows[0] if rows else None


@dataclass(frozen=True, slots=True)
class Taken:
    """A run and a step as they were, and the claim that was written in the same statement.

    ``at`` None: nothing was taken; planning has to decide. ``version`` is the run's after it,
    ``fence`` the step's.
    ``guarded``: there are gates, perhaps not of this step.
    """

    run: RunRow
    step: StepRow
    at: datetime | None
    version: int | None
    fence: int | None
    guarded: bool


def take(run_id: UUID, key: str, scope: str, *, worker: str, lease: timedelta) -> Taken | None:
    """Read a run with one of its steps, and claim the step if its place is kept (see
    ``orchestrator_take`` in sql/apply.sql); one round trip. None when either does not exist.

    The rows are those from before the claim. They are older still when somebody moved the run
    while this waited for its lock: then ``version`` is not the run's plus one.
    """
    crash_point("take:before")
    row: Sequence[Any] | None
    if direct.is_free():
        row = _take_alone(run_id, key, scope, worker, lease)
    else:
        row = fetch_prepared(_TAKE, [key, scope, key, scope, worker, lease, run_id])
    crash_point("take:after")
    if row is None:
        return None
    n = _N_RUN + 4
    return Taken(_run(row[4:n]), _step(row[n:]), *row[:4])


@dataclass(frozen=True, slots=True)
class DueStep:
    """A timer that is due, with its run and step as read."""

    timer_id: int
    kind: str
    run: RunRow
    step: StepRow


# Runs with much data are read one by one, under their lock: a batch of them would fill the memory.
_DUE = (
    f"SELECT t.id, t.kind, {_RUN_COLUMNS}, {_STEP_COLUMNS} FROM orchestrator_timer t"  # noqa: S608 - constant columns
    " JOIN orchestrator_run r ON r.id = t.run_id JOIN orchestrator_step s ON s.id = t.step_id"
    " WHERE t.id = ANY(%s) AND t.fire_at <= orchestrator_now()"
    " AND pg_column_size(r.input) + coalesce(pg_column_size(s.input), 0) < 20000 ORDER BY t.fire_at"
)


def read_due(timer_ids: Sequence[int]) -> list[DueStep]:
    """Runs and steps of these timers, as far as they are due, small and readable; nothing is
    locked."""
    found = []
    for row in fetch_all_prepared(_DUE, [list(timer_ids)]):
        n = _N_RUN + 2
        try:
            found.append(DueStep(row[0], row[1], _run(row[2:n]), _step(row[n:])))
        except Unreadable:
            continue  # told, and halted, by whoever takes its lock
    return found


def _take_alone(
    run_id: UUID, key: str, scope: str, worker: str, lease: timedelta
) -> list[Any] | None:
    name, item = key.encode(), scope.encode()
    length = b"%f seconds" % lease.total_seconds()
    found = _TAKE_ALONE.fetch_row([name, item, name, item, worker.encode(), length, run_id.bytes])
    if found is None:
        return None
    return [
        None if text is None else read(text)
        for text, read in zip(found, _TAKE_READERS, strict=True)
    ]


def read_item(run_id: UUID, key: str, scope: str) -> StepRow | None:
    """One step, or item, by its name in the run."""
    rows = _steps("s.run_id = %s AND s.key = %s AND s.scope = %s", [run_id, key, scope])
    return rows[0] if rows else None


def read_items(run_id: UUID, names: Sequence[tuple[str, str]]) -> list[StepRow]:
    """Steps, or items, by their ``(key, scope)`` in the run, in one query; in no order."""
    return _steps(
        "s.run_id = %s AND (s.key, s.scope) IN (SELECT * FROM unnest(%s::text[], %s::text[]))",
        [run_id, [key for key, _ in names], [scope for _, scope in names]],
    )


def longest_waiting(run_id: UUID, name: str, scope: str | None = None) -> StepRow | None:
    """The step of the run that has waited longest for this signal or decision."""
    where = "s.run_id = %s AND s.state = 'waiting' AND s.waiting_key = %s"
    where += " AND s.waiting_for <> 'service'"
    params: list[Any] = [run_id, name]
    if scope is not None:
        where += " AND s.scope = %s"
        params.append(scope)
    rows = _steps(f"{where} ORDER BY s.started_at, s.id LIMIT 1", params)
    return rows[0] if rows else None


def _steps(where: str, params: list[Any]) -> list[StepRow]:
    sql = f"SELECT {_STEP_COLUMNS} FROM orchestrator_step s WHERE {where}"  # noqa: S608 - constant columns, callers in this module
    return [_step(row) for row in fetch_all_prepared(sql, params)]


def read_outputs(run_id: UUID, positions: Iterable[int]) -> dict[int, Any]:
    """The outputs of these steps, by position; steps without a usable output are absent.

    A failed step that its fallback covers has the fallback's output.
    """
    found = fetch_all_prepared(
        "SELECT position, output FROM orchestrator_step"
        " WHERE run_id = %s AND position = ANY(%s) AND scope = ''"
        " AND (state IN ('completed', 'compensating', 'compensated') OR covered_by <> '')",
        [run_id, sorted(positions)],
    )
    return {position: _json(output) for position, output in found}


def last_outputs(run_id: UUID, limit: int) -> list[tuple[str, Any]]:
    """Keys and outputs of the steps that completed last, newest first."""
    found = fetch_all_prepared(
        "SELECT key, output FROM orchestrator_step WHERE run_id = %s AND state = 'completed'"
        " AND scope = '' AND output IS NOT NULL ORDER BY finished_at DESC, id DESC LIMIT %s",
        [run_id, limit],
    )
    return [(key, _json(output)) for key, output in found]


def completion_order(run_id: UUID, positions: Iterable[int]) -> list[int]:
    """Those of the steps that completed, first to complete first."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT position FROM orchestrator_step WHERE run_id = %s AND position = ANY(%s)"
            " AND scope = '' AND (state = 'completed' OR covered_by <> '')"
            " ORDER BY finished_at, id",
            [run_id, sorted(positions)],
        )
        return [position for (position,) in cursor.fetchall()]


def item_outputs(run_id: UUID, key: str) -> list[Any]:
    """The outputs of a for_each in item order; null where an item did not complete."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT CASE WHEN i.state IN ('completed', 'compensating', 'compensated')"
            "  THEN i.output END FROM orchestrator_step i"
            " JOIN orchestrator_step p ON p.run_id = i.run_id AND p.key = i.key AND p.scope = ''"
            " WHERE i.run_id = %s AND i.key = %s AND i.index < p.items_total ORDER BY i.index",
            [run_id, key],
        )
        return [_json(output) for (output,) in cursor.fetchall()]


def first_item_error(run_id: UUID, key: str) -> dict[str, Any] | None:
    """The error of the first failed item of a for_each."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT error FROM orchestrator_step WHERE run_id = %s AND key = %s"
            " AND index IS NOT NULL AND error IS NOT NULL ORDER BY index LIMIT 1",
            [run_id, key],
        )
        row = cursor.fetchone()
    error: dict[str, Any] | None = None if row is None else _json(row[0])
    return error


_TALLY = (
    "SELECT (SELECT coalesce(array_agg(step ORDER BY seq), '{}') FROM ("
    "   SELECT step, seq FROM orchestrator_event WHERE run_id = r.id"
    "   AND type = 'step.completed' AND step NOT LIKE '%%[%%'"
    "   AND step NOT LIKE 'undo:%%' ORDER BY seq LIMIT 100) c),"
    " (SELECT coalesce(jsonb_object_agg(type, n), '{}') FROM ("
    "   SELECT type, count(*) n FROM orchestrator_event WHERE run_id = r.id"
    "   GROUP BY type) t), r.cost_microusd FROM orchestrator_run r WHERE r.id = %s"
)


def read_tally(run_id: UUID) -> Tally:
    """What the history says so far, in one query."""
    row = fetch_prepared(_TALLY, [run_id])
    if row is None:
        raise InvariantBroken(f"run {run_id} is gone")
    route, counts, cost = row
    return Tally(list(route), _json(counts), cost)
