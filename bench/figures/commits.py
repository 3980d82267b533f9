"""How many writing commits a step costs, over a whole run of ten steps; exact, from the WAL."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from django.db import connection

from bench.documents import CHAIN_STEPS
from bench.marks import wait_until
from bench.report import Figure, Row
from bench.stage import Stage
from bench.statements import Statement, forget_statements, lines, statements

SHAPE = "chain"


def measure(stage: Stage) -> Iterator[Figure]:
    """Nothing else runs meanwhile: the sweeps are stopped, runs go one at a time."""
    stage.stop_pulse()
    try:
        stage.warm_up([stage.ours], [SHAPE])
        runs = 10 if stage.quick else 30
        forget_statements()
        counts = [_commits_of_one(stage) for _ in range(runs)]
        found = statements()
    finally:
        stage.start_pulse()
    a_step = statistics.median(counts) / CHAIN_STEPS
    trips = sum(one.calls for one in found if _counts(one)) / runs / CHAIN_STEPS
    yield Figure(
        name="commits",
        title="writing commits a step, whole run of 10 (start, claims, settles, end, outbox)",
        unit="commits",
        ours=Row(side=stage.ours.name, value=a_step, shown={"round trips a step": trips}),
        as_number=True,
        target=1.2,
        details=lines([one for one in found if _counts(one)], runs * CHAIN_STEPS, limit=15),
    )


def _counts(one: Statement) -> bool:
    """Not the bench's own look at whether the run has ended."""
    return not any(word in one.text for word in ("pg_", '"finished_at" IS NULL', "count(*)"))


def _commits_of_one(stage: Stage) -> int:
    first = _insert_position()
    stage.run_alone(stage.ours, SHAPE)
    wait_until(_outbox_is_empty, "the outbox to be handled")
    last = _insert_position()
    wait_until(lambda: _is_flushed(last), "the WAL to be flushed")
    return _one(
        "SELECT count(*) FROM pg_get_wal_records_info(%s::pg_lsn, %s::pg_lsn)"
        " WHERE resource_manager = 'Transaction' AND record_type = 'COMMIT'",
        first,
        last,
    )


def _insert_position() -> str:
    with connection.cursor() as cursor:
        cursor.execute("CREATE EXTENSION IF NOT EXISTS pg_walinspect")
        cursor.execute("SELECT pg_current_wal_insert_lsn()::text")
        position: str = cursor.fetchone()[0]
    return position


def _is_flushed(position: str) -> bool:
    return bool(_one("SELECT (pg_current_wal_flush_lsn() >= %s::pg_lsn)::int", position))


def _outbox_is_empty() -> bool:
    return _one("SELECT count(*) FROM orchestrator_outbox") == 0


def _one(sql: str, *params: object) -> int:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        value: int = cursor.fetchone()[0]
    return value
