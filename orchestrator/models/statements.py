"""Running one hand-written statement, and JSON as text for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import orjson
from django.db import connection, transaction

from orchestrator.models import kept

MAX_JSON_BYTES = 200_000_000  # jsonb itself ends at 256 MB, and a message at 1 GB


class TooLarge(ValueError):
    """JSON that PostgreSQL would refuse, or end the session over."""


def encoded(value: Any) -> bytes:
    """The value as JSON in UTF-8. Raises TooLarge."""
    text = orjson.dumps(value)
    if len(text) > MAX_JSON_BYTES:
        raise TooLarge(f"{len(text)} bytes of JSON are more than the database holds")
    return text


def dumps(value: Any) -> str:
    """The value as JSON text, for a ``%s::jsonb`` place. Raises TooLarge."""
    return encoded(value).decode()


def fetch_prepared(sql: str, params: Sequence[Any]) -> tuple[Any, ...] | None:
    """The first row of a hot statement, parsed and planned once a connection by the server.

    Joins the open transaction, else autocommits. Django's cursor would bind the values on our
    side and send a new text each time: 0.1 ms and a parse more.
    """
    rows = fetch_all_prepared(sql, params)
    return rows[0] if rows else None


def fetch_all_prepared(sql: str, params: Sequence[Any]) -> list[tuple[Any, ...]]:
    """All rows of a hot statement; see ``fetch_prepared``."""
    return kept.fetch_all(sql, params)


def execute(sql: str, params: Sequence[Any]) -> None:
    """Run a statement whose rows nobody needs; joins the open transaction."""
    with connection.cursor() as cursor:
        cursor.execute(sql, params)


@contextmanager
def one_snapshot() -> Iterator[None]:
    """All reads see the same instant. Inside a caller's transaction, whatever that one sees."""
    joined = connection.in_atomic_block
    with transaction.atomic():
        if not joined:
            execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY", [])
        yield
