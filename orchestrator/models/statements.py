"""Running one hand-written statement, and JSON as text for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from django.db import connection
from psycopg import Cursor


def dumps(value: Any) -> str:
    """The value as JSON text, for a ``%s::jsonb`` place."""
    return orjson.dumps(value).decode()


def fetch_prepared(sql: str, params: Sequence[Any]) -> tuple[Any, ...] | None:
    """The first row of a hot statement, parsed and planned once a connection by the server.

    Joins the open transaction, else autocommits. Django's cursor would bind the values on our
    side and send a new text each time: 0.1 ms and a parse more.
    """
    connection.ensure_connection()
    with connection.wrap_database_errors, Cursor(connection.connection) as cursor:
        cursor.execute(sql, params, prepare=True)
        row: tuple[Any, ...] | None = cursor.fetchone()
    return row


def execute(sql: str, params: Sequence[Any]) -> None:
    """Run a statement whose rows nobody needs; joins the open transaction."""
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
