"""Running one hand-written statement, and JSON as text for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from django.db import connection


def dumps(value: Any) -> str:
    """The value as JSON text, for a ``%s::jsonb`` place."""
    return orjson.dumps(value).decode()


def execute(sql: str, params: Sequence[Any]) -> None:
    """Run a statement whose rows nobody needs; joins the open transaction."""
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
