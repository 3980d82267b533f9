"""The hot path: settle a plain step, and claim the next or end the run, in one lean statement."""

from __future__ import annotations

import struct
from collections.abc import Sequence
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

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)  # PostgreSQL's, in its binary instants
_INT8 = struct.Struct("!q")


def _call(name: bytes, *, places: int, binary: set[int]) -> direct.DirectStatement:
    marks = b", ".join(b"$%d" % (number + 1) for number in range(places))
    sql = b"SELECT %s(%s)" % (name, marks)
    return direct.DirectStatement(name, sql, places=places, binary=frozenset(binary))


_ADVANCE = _call(b"orchestrator_advance", places=19, binary={0, 2, 8})
_PASS_ON = _call(b"orchestrator_pass_on", places=16, binary={0, 2, 8})
_FINISH = _call(b"orchestrator_finish", places=14, binary={0, 2})


@dataclass(slots=True, kw_only=True)
class PlainSettle:
    """A step that completed without more ado (sql/advance.sql says what each is).

    ``owed``: its input as JSON text, where its claim did not write it; ``events``: the lines of
    history as JSON text, None for the usual ones.
    """

    run_id: UUID
    version: int
    compact: bytes
    step_id: str
    fence: int
    done: str
    output: Any
    owed: bytes | None
    events: bytes | None = None

    def values(self) -> list[bytes | None]:
        """The arguments that both statements begin with."""
        return [
            self.run_id.bytes,
            b"%d" % self.version,
            self.compact,
            self.step_id.encode(),
            b"%d" % self.fence,
            self.done.encode(),
            encoded(self.output),
            self.owed,
        ]


@dataclass(slots=True, kw_only=True)
class Advance(PlainSettle):
    """The arguments of ``orchestrator_advance``: the next step is claimed with it."""

    next_id: UUID
    key: str
    position: int
    type: str
    queue: str
    timeout_s: float
    input: Any
    gates: list[str] | None
    worker: str
    lease: timedelta


@dataclass(slots=True, kw_only=True)
class PassOn(PlainSettle):
    """The arguments of ``orchestrator_pass_on``: the next step is READY, and a message is on its
    way. ``plain_timeout_s`` as on the step's row."""

    next_id: UUID
    key: str
    position: int
    type: str
    queue: str
    plain_timeout_s: float | None
    gates: list[str] | None


@dataclass(slots=True, kw_only=True)
class Finish(PlainSettle):
    """The arguments of ``orchestrator_finish``: the run completes with it. ``ended`` is the payload
    of ``run.completed``."""

    run_output: Any
    outcome: str
    compensation: str
    warnings: list[Any]
    ended: dict[str, Any]


def advance(move: Advance | PassOn | Finish) -> datetime:
    """Write it, all or nothing; the database's instant of it. Call with no transaction open.

    Raises MovedOn or StaleFence when a guard fails: then nothing is written.
    """
    statement, rest = _rest(move)
    values = [*move.values(), *rest]
    crash_point("advance:before")
    try:
        at = statement.fetch(values)
    except DatabaseError as error:
        guard = guard_error(error)
        if guard is None:
            raise
        raise guard from None
    if at is None:
        raise InvariantBroken("the statement returned nothing")
    crash_point("advance:after")
    return _EPOCH + timedelta(microseconds=_INT8.unpack(at)[0])


def _rest(
    move: Advance | PassOn | Finish,
) -> tuple[direct.DirectStatement, Sequence[bytes | None]]:
    match move:
        case Advance():
            return _ADVANCE, _next(move)
        case PassOn():
            return _PASS_ON, _ready(move)
        case Finish():
            return _FINISH, _end(move)


def _next(move: Advance) -> Sequence[bytes | None]:
    return (
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
    )


def _ready(move: PassOn) -> Sequence[bytes | None]:
    return (
        move.next_id.bytes,
        move.key.encode(),
        b"%d" % move.position,
        move.type.encode(),
        move.queue.encode(),
        None if move.plain_timeout_s is None else b"%r" % move.plain_timeout_s,
        None if move.gates is None else _text_array(move.gates),
        move.events,
    )


def _end(move: Finish) -> Sequence[bytes | None]:
    return (
        encoded(move.run_output),
        move.outcome.encode(),
        move.compensation.encode(),
        encoded(move.warnings),
        encoded(move.ended),
        move.events,
    )


def _text_array(words: list[str]) -> bytes:
    quoted = (word.replace("\\", "\\\\").replace('"', '\\"') for word in words)
    return b"{%s}" % ",".join(f'"{word}"' for word in quoted).encode()
