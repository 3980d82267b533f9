"""The hot path: settle a plain step and claim the next new one, in one lean statement."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import DatabaseError

from orchestrator.core.errors import InvariantBroken
from orchestrator.crash import crash_point
from orchestrator.models import direct
from orchestrator.models.moves import guard_error
from orchestrator.models.statements import encoded

_PLACES = 19
_ADVANCE = direct.DirectStatement(
    b"orchestrator_advance",
    b"SELECT orchestrator_advance(%s)" % b", ".join(b"$%d" % (n + 1) for n in range(_PLACES)),
    places=_PLACES,
    binary=frozenset({0, 2, 8}),
)
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)  # PostgreSQL's, in its binary instants
_INT8 = struct.Struct("!q")


@dataclass(slots=True, kw_only=True)
class Advance:
    """The arguments of ``orchestrator_advance`` (sql/advance.sql says what each is).

    ``owed``: the settled step's input as JSON text, where its claim did not write it; ``events``:
    the lines of history as JSON text, None for the usual three.
    """

    run_id: UUID
    version: int
    compact: bytes
    step_id: str
    fence: int
    done: str
    output: Any
    owed: bytes | None
    next_id: UUID
    key: str
    position: int
    type: str
    queue: str
    timeout_s: float
    input: Any
    gates: list[str] | None
    events: bytes | None
    worker: str
    lease: timedelta


def advance(move: Advance) -> datetime:
    """Write it, all or nothing; the database's instant of it. Call with no transaction open.

    Raises MovedOn or StaleFence when a guard fails: then nothing is written.
    """
    values = [
        move.run_id.bytes,
        b"%d" % move.version,
        move.compact,
        move.step_id.encode(),
        b"%d" % move.fence,
        move.done.encode(),
        encoded(move.output),
        move.owed,
        move.next_id.bytes,
        move.key.encode(),
        b"%d" % move.position,
        move.type.encode(),
        move.queue.encode(),
        b"%r" % move.timeout_s,
        encoded(move.input),
        None if move.gates is None else _text_array(move.gates),
        move.events,
        move.worker.encode(),
        b"%f seconds" % move.lease.total_seconds(),
    ]
    crash_point("advance:before")
    try:
        at = _ADVANCE.fetch(values)
    except DatabaseError as error:
        guard = guard_error(error)
        if guard is None:
            raise
        raise guard from None
    if at is None:
        raise InvariantBroken("orchestrator_advance returned nothing")
    crash_point("advance:after")
    return _EPOCH + timedelta(microseconds=_INT8.unpack(at)[0])


def _text_array(words: list[str]) -> bytes:
    quoted = (word.replace("\\", "\\\\").replace('"', '\\"') for word in words)
    return b"{%s}" % ",".join(f'"{word}"' for word in quoted).encode()
