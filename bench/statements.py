"""What PostgreSQL spent its time on, by statement and by function."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import connection


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement's calls and milliseconds; ``is_top`` when a client sent it, not a function."""

    text: str
    calls: int
    total_ms: float
    is_top: bool


def forget_statements(*, nested: bool = False) -> None:
    """Count from here on. ``nested``: statements inside functions too, which costs time."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        track = "all" if nested else "top"
        cursor.execute(f"ALTER SYSTEM SET pg_stat_statements.track = '{track}'")
        cursor.execute("ALTER SYSTEM SET track_functions = 'all'")
        cursor.execute("SELECT pg_reload_conf()")
        cursor.execute("SELECT pg_stat_statements_reset(), pg_stat_reset()")


def statements() -> list[Statement]:
    """Since ``forget_statements``, the most expensive first."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT regexp_replace(query, '\\s+', ' ', 'g'), calls, total_exec_time, toplevel"
            " FROM pg_stat_statements ORDER BY total_exec_time DESC"
        )
        return [Statement(*row) for row in cursor.fetchall()]


def functions() -> list[tuple[str, int, float, float]]:
    """Name, calls, total and own milliseconds of each function, the most expensive first."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(
            "SELECT funcname, calls, total_time, self_time FROM pg_stat_user_functions"
            " ORDER BY self_time DESC"
        )
        return list(cursor.fetchall())
