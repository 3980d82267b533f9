"""Ending waits by the lean statement: one in the open transaction, or many in a pipeline."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import DatabaseError

from orchestrator.core.errors import InvariantBroken
from orchestrator.crash import crash_point
from orchestrator.models import direct
from orchestrator.models.moves import GUARDED, guard_error
from orchestrator.models.statements import dumps, encoded, fetch_prepared

logger = logging.getLogger(__name__)

_PLACES = 11
_WAKE = direct.DirectStatement(
    b"orchestrator_wake",
    b"SELECT orchestrator_wake(%s)" % b", ".join(b"$%d" % (n + 1) for n in range(_PLACES)),
    places=_PLACES,
    binary=frozenset({0, 2}),
)
_WAKE_ONE = (
    "SELECT orchestrator_wake(%s, %s, %s, %s, %s, %s, %s::jsonb, %s, %s::jsonb, %s::jsonb, false)"
)
# A commit that wrote something waits for the disk, and all before it is there then too.
_FLUSH = "SELECT pg_logical_emit_message(true, 'orchestrator', '')"


@dataclass(slots=True, kw_only=True)
class Wake:
    """The arguments of ``orchestrator_wake`` (sql/wake.sql says what each is)."""

    run_id: UUID
    version: int
    compact: bytes
    step_id: UUID
    fence: int
    state: str
    output: Any
    queued: bool | None
    ready: list[dict[str, Any]]
    events: list[tuple[str, str, dict[str, Any], str]]


def wake(move: Wake) -> datetime:
    """Write it, all or nothing; the database's instant of it. Joins the open transaction.

    Raises MovedOn or StaleFence when a guard fails; an open transaction is then unusable.
    """
    crash_point("wake:before")
    try:
        row = fetch_prepared(
            _WAKE_ONE,
            [
                move.run_id,
                move.version,
                move.compact,
                move.step_id,
                move.fence,
                move.state,
                dumps(move.output),
                move.queued,
                dumps(move.ready) if move.ready else None,
                dumps(move.events),
            ],
        )
    except DatabaseError as error:
        raise guard_error(error) or error from None
    if row is None:
        raise InvariantBroken("orchestrator_wake returned nothing")
    crash_point("wake:after")
    at: datetime = row[0]
    return at


def wake_each(moves: Sequence[Wake]) -> list[bool]:
    """Write each in a transaction of its own, in one round trip; which were written. What was
    refused is as it was. All are on disk when this returns. Call with no transaction open."""
    crash_point("wake_each:before")
    answers = _WAKE.fetch_each([_values(move) for move in moves])
    crash_point("wake_each:written")
    fetch_prepared(_FLUSH, [])
    crash_point("wake_each:after")
    for move, answer in zip(moves, answers, strict=True):
        if isinstance(answer, str) and answer not in GUARDED:
            logger.warning("PostgreSQL refused to wake step %s: %s", move.step_id, answer)
    return [isinstance(answer, bytes) for answer in answers]


def _values(move: Wake) -> list[bytes | None]:
    queued = None if move.queued is None else (b"t" if move.queued else b"f")
    return [
        move.run_id.bytes,
        b"%d" % move.version,
        move.compact,
        str(move.step_id).encode(),
        b"%d" % move.fence,
        move.state.encode(),
        encoded(move.output),
        queued,
        encoded(move.ready) if move.ready else None,
        encoded(move.events),
        b"t",
    ]
