"""What PostgreSQL spent its time on, by statement and by function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import connection


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement's calls and milliseconds; ``is_top`` when a client sent it, not a function."""

    text: str
    calls: int
    total_ms: float
    is_top: bool

    @property
    def is_round_trip(self) -> bool:
        """Sent by a client; PostgreSQL's own look for a foreign key passes for that, and is not."""
        return self.is_top and "FROM ONLY" not in self.text


def forget_statements(*, nested: bool = False) -> None:
    """Count from here on. ``nested``: statements inside functions too, which costs time."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        track = "all" if nested else "top"
        cursor.execute(f"ALTER SYSTEM SET pg_stat_statements.track = '{track}'")
        cursor.execute("ALTER SYSTEM SET track_functions = 'all'")
        cursor.execute("SELECT pg_reload_conf()")
        cursor.execute("SELECT pg_stat_statements_reset(), pg_stat_reset()")


def stop_counting() -> None:
    """Statements are counted no more: their time is taken."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER SYSTEM SET pg_stat_statements.track = 'none'")
        cursor.execute("ALTER SYSTEM SET track_functions = 'none'")
        cursor.execute("SELECT pg_reload_conf()")


def statements() -> list[Statement]:
    """Since ``forget_statements``, the most expensive first."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT regexp_replace(query, '\\s+', ' ', 'g'), calls, total_exec_time, toplevel"
            " FROM pg_stat_statements ORDER BY total_exec_time DESC"
        )
        return [Statement(*row) for row in cursor.fetchall()]


def lines(found: Sequence[Statement], steps: int, *, limit: int) -> list[str]:
    """A table of what a step costs; nested statements are marked with a plus."""
    table = [f"{'us/step':>8} {'calls/step':>10} {'us/call':>8}"]
    for one in found[:limit]:
        cost = f"{one.total_ms * 1e3 / steps:8.1f} {one.calls / steps:10.2f}"
        kind = " " if one.is_top else "+"
        table.append(f"{cost} {one.total_ms * 1e3 / one.calls:8.1f} {kind} {one.text[:110]}")
    return table


def functions() -> list[tuple[str, int, float, float]]:
    """Name, calls, total and own milliseconds of each function, the most expensive first."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(
            "SELECT funcname, calls, total_time, self_time FROM pg_stat_user_functions"
            " ORDER BY self_time DESC"
        )
        return list(cursor.fetchall())


def tables() -> list[tuple[str, int, int, int, int]]:
    """Name and rows inserted, updated, updated without touching an index, deleted."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute(
            "SELECT relname, n_tup_ins, n_tup_upd, n_tup_hot_upd, n_tup_del"
            " FROM pg_stat_user_tables WHERE n_tup_ins + n_tup_upd + n_tup_del > 0 ORDER BY relname"
        )
        return list(cursor.fetchall())


def wal_bytes() -> int:
    """Bytes of WAL that the statements of clients wrote since ``forget_statements``."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT coalesce(sum(wal_bytes), 0)::bigint FROM pg_stat_statements WHERE toplevel"
        )
        total: int = cursor.fetchone()[0]
    return total
