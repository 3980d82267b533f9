"""Keeping what replays came to, and finding what to replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connection

from orchestrator.models.statements import dumps, execute


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One replay, as it is kept; see ``ReplayCheck``."""

    run_id: UUID
    n_lines: int
    decisions: int
    identical: bool | None
    unread: str
    difference: dict[str, Any] | None


def store_checks(checks: Sequence[Check], *, seconds: float) -> None:
    """Keep these checks, each in the place of the run's last one, and add them to the day's sum."""
    if not checks:
        return
    execute(
        "INSERT INTO orchestrator_replaycheck AS c"
        " (run_id, checked_at, n_lines, decisions, identical, unread, difference)"
        " SELECT r, t, n, d, i, u, x::jsonb FROM orchestrator_now() t,"
        "  unnest(%s::uuid[], %s::bigint[], %s::int[], %s::boolean[], %s::text[], %s::text[])"
        "  AS v(r, n, d, i, u, x) ORDER BY r"
        " ON CONFLICT (run_id) DO UPDATE SET checked_at = excluded.checked_at,"
        "  n_lines = excluded.n_lines, decisions = excluded.decisions,"
        "  identical = excluded.identical, unread = excluded.unread,"
        "  difference = excluded.difference",
        [
            [c.run_id for c in checks],
            [c.n_lines for c in checks],
            [c.decisions for c in checks],
            [c.identical for c in checks],
            [c.unread for c in checks],
            [None if c.difference is None else dumps(c.difference) for c in checks],
        ],
    )
    read = [c for c in checks if c.identical is not None]
    execute(
        "INSERT INTO orchestrator_replayday AS d (day, n_checked, n_identical, n_lines, seconds)"
        " SELECT (orchestrator_now() AT TIME ZONE 'UTC')::date, %s, %s, %s, %s"
        " ON CONFLICT (day) DO UPDATE SET n_checked = d.n_checked + excluded.n_checked,"
        "  n_identical = d.n_identical + excluded.n_identical,"
        "  n_lines = d.n_lines + excluded.n_lines, seconds = d.seconds + excluded.seconds",
        [len(read), sum(bool(c.identical) for c in read), sum(c.n_lines for c in read), seconds],
    )


@dataclass(frozen=True, slots=True)
class Rate:
    """Of the runs replayed within a time: how many, how many were identical, and some that were
    not."""

    n_checked: int
    n_identical: int
    differing: list[UUID]

    @property
    def percent(self) -> float:
        """Identical ones in a hundred; 100 when nothing was replayed."""
        return 100 * self.n_identical / self.n_checked if self.n_checked else 100.0


def pass_rate(*, hours: int, named: int = 20) -> Rate:
    """How the newest check of each run came out, of those checked within so many hours."""
    since = "checked_at > orchestrator_now() - make_interval(hours => %s)"
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*), count(*) FILTER (WHERE identical) FROM orchestrator_replaycheck"  # noqa: S608 - constant text
            f" WHERE identical IS NOT NULL AND {since}",
            [hours],
        )
        n_checked, n_identical = cursor.fetchone()
        cursor.execute(
            "SELECT run_id FROM orchestrator_replaycheck"  # noqa: S608 - constant text
            f" WHERE NOT identical AND {since} ORDER BY checked_at DESC, run_id LIMIT %s",
            [hours, named],
        )
        differing = [run_id for (run_id,) in cursor.fetchall()]
    return Rate(n_checked, n_identical, differing)


# -- what to replay --------------------------------------------------------------------------------

_NOT_CHECKED = (
    " AND NOT EXISTS (SELECT 1 FROM orchestrator_replaycheck c"
    "  WHERE c.run_id = r.id AND c.n_lines = r.next_seq - 1)"
)
_ENDED = "r.state IN ('completed', 'failed', 'cancelled', 'timed_out')"


def last_event() -> int:
    """How far the history of all runs goes."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT coalesce(pg_sequence_last_value("
            "pg_get_serial_sequence('orchestrator_event', 'id')::regclass), 0)"
        )
        row = cursor.fetchone()
    assert row is not None
    return int(row[0])


def ended_since(event: int, limit: int) -> list[UUID]:
    """A sample, by chance, of the runs that ended behind that line of all histories and have not
    been replayed since."""
    return _ids(
        "SELECT r.id FROM (SELECT DISTINCT run_id FROM orchestrator_event WHERE id > %s"  # noqa: S608 - constant text
        "  AND type IN ('run.completed', 'run.failed', 'run.cancelled', 'run.timed_out')) e"
        f" JOIN orchestrator_run r ON r.id = e.run_id WHERE {_ENDED}{_NOT_CHECKED}"
        " ORDER BY random() LIMIT %s",
        [event, limit],
    )


def newest_ended(limit: int, among: int) -> list[UUID]:
    """Of the newest runs, a sample by chance of those that ended and were not replayed since."""
    return _ids(
        "SELECT r.id FROM (SELECT id, state, next_seq FROM orchestrator_run"  # noqa: S608 - constant text
        f"  ORDER BY id DESC LIMIT %s) r WHERE {_ENDED}{_NOT_CHECKED} ORDER BY random() LIMIT %s",
        [among, limit],
    )


def some_runs(limit: int, since: UUID) -> list[UUID]:
    """A sample, by chance, of all runs born at or after that id."""
    return _ids(
        "SELECT id FROM orchestrator_run WHERE id >= %s ORDER BY random() LIMIT %s", [since, limit]
    )


def runs_after(last: UUID, limit: int) -> list[UUID]:
    """The next runs by birth."""
    return _ids("SELECT id FROM orchestrator_run WHERE id > %s ORDER BY id LIMIT %s", [last, limit])


def _ids(sql: str, params: list[Any]) -> list[UUID]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return [run_id for (run_id,) in cursor.fetchall()]
