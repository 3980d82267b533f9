"""Statements that look and must not hold anybody up: they are given up after their time."""

from __future__ import annotations

from django.db import OperationalError, connection

_CANCELLED = "57014"


def set_patience(milliseconds: int) -> None:
    """Statements of the open transaction are given up after so long."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('statement_timeout', %s, true)", [str(milliseconds)])


def avoid_whole_tables() -> None:
    """Statements of the open transaction go by an index wherever there is one: a look is made of
    small parts of large tables, whatever their statistics say."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")


def ran_out_of_patience(error: OperationalError) -> bool:
    """Whether a statement was given up for its time (else the database is away)."""
    return getattr(error.__cause__, "sqlstate", None) == _CANCELLED
