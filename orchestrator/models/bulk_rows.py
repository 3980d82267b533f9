"""Writing and taking the items of bulk retries; call inside a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.db import connection

from orchestrator.models.statements import dumps, execute


def store_bulk(
    bulk_id: UUID,
    *,
    chosen_by: dict[str, object],
    reason: str,
    actor: str,
    role: str,
    letters: Sequence[tuple[int, int]],
) -> bool:
    """Keep the choice: ``(letter, version of its run)``, in this order. False: it was kept before,
    under the same id."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO orchestrator_bulkretry (id, chosen_by, reason, actor, role, total,"
            " created_at) VALUES (%s, %s::jsonb, %s, %s, %s, %s, orchestrator_now())"
            " ON CONFLICT (id) DO NOTHING",
            [bulk_id, dumps(chosen_by), reason, actor, role, len(letters)],
        )
        if cursor.rowcount != 1:
            return False
    execute(
        "INSERT INTO orchestrator_bulkitem (bulk_id, letter_id, expected_version)"
        " SELECT %s, letter, version FROM unnest(%s::bigint[], %s::bigint[])"
        " WITH ORDINALITY AS chosen(letter, version, place) ORDER BY place",
        [bulk_id, [pk for pk, _ in letters], [version for _, version in letters]],
    )
    return True


def take_item(bulk_id: UUID) -> tuple[int, int, int] | None:
    """The next item that nobody has handled or is handling, locked: ``(item, letter, version)``."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id, letter_id, expected_version FROM orchestrator_bulkitem"
            " WHERE bulk_id = %s AND status = '' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED",
            [bulk_id],
        )
        row = cursor.fetchone()
    return None if row is None else (row[0], row[1], row[2])


def close_item(item_id: int, *, status: str, code: str, detail: str) -> None:
    """Keep what became of it."""
    execute(
        "UPDATE orchestrator_bulkitem SET status = %s, code = %s, detail = %s,"
        " handled_at = orchestrator_now() WHERE id = %s",
        [status, code, detail, item_id],
    )


def count_items(bulk_id: UUID) -> dict[str, int]:
    """How many items there are of each status; the empty one is what is left."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT status, count(*) FROM orchestrator_bulkitem WHERE bulk_id = %s GROUP BY status",
            [bulk_id],
        )
        return dict(cursor.fetchall())
