"""Opening and closing alerts: one statement each, safe from any number of processes at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connection

from orchestrator.core.errors import storable
from orchestrator.models.alert import Severity
from orchestrator.models.statements import dumps

_OPEN = (
    "INSERT INTO orchestrator_alert AS a"
    " (kind, key, tenant, run_id, severity, title, detail, opened_at, last_seen_at, count)"
    " SELECT %s, %s, %s, %s, %s, %s, %s::jsonb, t, t, 1 FROM orchestrator_now() t"
    " ON CONFLICT (kind, key) WHERE closed_at IS NULL DO UPDATE SET"
    "  count = a.count + 1, last_seen_at = excluded.last_seen_at,"
    "  severity = excluded.severity, title = excluded.title, detail = excluded.detail"
    " RETURNING a.count = 1"
)


def open_alert(  # noqa: PLR0913 - the columns of one row, by name
    kind: str,
    key: str,
    *,
    title: str,
    detail: dict[str, Any] | None = None,
    severity: Severity = "warning",
    tenant: str = "",
    run_id: UUID | None = None,
) -> bool:
    """Open an alert, or say that it is still so; True when it was newly opened.

    One that is open already counts the sighting and takes over title, detail and severity.
    ``detail`` is JSON. Joins the open transaction and then holds the alert's row until its end:
    call it last, and for one alert.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            _OPEN,
            [kind, key, tenant, run_id, severity, storable(title), dumps(_storable(detail or {}))],
        )
        newly: bool = cursor.fetchone()[0]
    return newly


def close_alert(kind: str, key: str) -> bool:
    """The matter is cured; False when no such alert was open."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE orchestrator_alert SET closed_at = orchestrator_now()"
            " WHERE kind = %s AND key = %s AND closed_at IS NULL",
            [kind, key],
        )
        return bool(cursor.rowcount)


@dataclass(frozen=True, slots=True)
class OpenAlert:
    """An alert that is open."""

    key: str
    run_id: UUID | None


def open_alerts(kind: str, limit: int) -> list[OpenAlert]:
    """Open alerts of a kind, those first that were not seen for longest."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT key, run_id FROM orchestrator_alert WHERE kind = %s AND closed_at IS NULL"
            " ORDER BY last_seen_at, id LIMIT %s",
            [kind, limit],
        )
        return [OpenAlert(*row) for row in cursor.fetchall()]


def still_open(kind: str, keys: Sequence[str]) -> set[str]:
    """Which of these alerts are open already."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT key FROM orchestrator_alert"
            " WHERE kind = %s AND key = ANY(%s) AND closed_at IS NULL",
            [kind, list(keys)],
        )
        return {key for (key,) in cursor.fetchall()}


def _storable(value: Any) -> Any:
    """The value with every text in it as PostgreSQL can hold it: errors of strangers stand here."""
    match value:
        case str():
            return storable(value)
        case dict():
            return {storable(str(name)): _storable(one) for name, one in value.items()}
        case list() | tuple():
            return [_storable(one) for one in value]
        case _:
            return value
