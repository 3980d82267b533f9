"""Taking turns: of all processes that may do a duty, one does it each time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson
from django.db import connection

from orchestrator.models.statements import dumps, execute

# A clock that was set back must not stop a duty for good.
_TAKE = (
    "INSERT INTO orchestrator_duty AS d (name, taken_at, notes)"
    " SELECT %s, t, '{}' FROM orchestrator_now() t"
    " ON CONFLICT (name) DO UPDATE SET before = d.taken_at, taken_at = excluded.taken_at"
    "  WHERE d.taken_at <= excluded.taken_at - make_interval(secs => %s)"
    "     OR d.taken_at > excluded.taken_at + make_interval(secs => %s)"
    " RETURNING extract(epoch FROM taken_at - before)::float8, notes"
)


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn that is ours. ``since_s``: seconds since the turn before; None: it is the first."""

    since_s: float | None
    notes: dict[str, Any]


def take_turn(name: str, *, every_s: float) -> Turn | None:
    """Take the turn if it is due and nobody else has it; one statement, of any number at once."""
    with connection.cursor() as cursor:
        cursor.execute(_TAKE, [name, every_s, every_s])
        row = cursor.fetchone()
    return None if row is None else Turn(row[0], orjson.loads(row[1]))


def note(name: str, notes: dict[str, Any]) -> None:
    """Leave word for the next turn and for people."""
    execute("UPDATE orchestrator_duty SET notes = %s::jsonb WHERE name = %s", [dumps(notes), name])
