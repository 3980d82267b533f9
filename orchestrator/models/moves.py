"""Writing runs and steps: every statement is guarded by what it expects to find.

``apply_decision`` is the hot path, one statement for a whole decision (sql/apply.sql). Rarer
changes stand beside it in ``step_moves``, ``loops``, ``timer_rows``, ``attempts``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import DatabaseError

from orchestrator.core.errors import InvariantBroken, OrchestratorError
from orchestrator.crash import crash_point
from orchestrator.models import direct
from orchestrator.models.rows import RunRow
from orchestrator.models.statements import dumps, encoded, execute, fetch_prepared

_MOVED_ON = "OR001"
_STALE = "OR002"
_EFFECT_MOVED = "OR004"


class MovedOn(OrchestratorError):
    """The run was changed by somebody else since it was read; read again and decide anew."""

    code = "run_moved"


class StaleFence(OrchestratorError):
    """The step is not as expected: its lease was lost, or its state changed. Nothing is written."""

    code = "stale_fence"


class EffectMoved(MovedOn):
    """The claimed step's effect is not as it was when the claim was prepared: look again."""

    code = "effect_moved"


@dataclass(slots=True, kw_only=True)
class Write:
    """The arguments of one ``orchestrator_apply`` call; shapes as documented in sql/apply.sql.
    ``settled`` and ``company``: of several steps at once, see sql/company.sql."""

    run_id: UUID
    version: int
    compact: bytes
    state: str
    waiting_for: str = ""
    end: dict[str, Any] | None = None
    subject: dict[str, Any] | None = None
    ready: list[dict[str, Any]] = field(default_factory=list)
    claim: dict[str, Any] | None = None
    events: list[tuple[str, str, dict[str, Any], str]] = field(default_factory=list)
    worker: str = ""
    lease: timedelta = timedelta(seconds=15)
    settled: list[dict[str, Any]] = field(default_factory=list)
    company: list[dict[str, Any]] = field(default_factory=list)


_APPLY_MANY = (
    "SELECT orchestrator_apply_many(%s, %s, %s, %s, %s, %s::jsonb, %s::jsonb, %s::jsonb,"
    " %s::jsonb, %s::jsonb, %s, %s, %s::jsonb, %s::jsonb)"
)
_APPLY = (
    "SELECT orchestrator_apply(%s, %s, %s, %s, %s, %s::jsonb, %s::jsonb, %s::jsonb, %s::jsonb,"
    " %s::jsonb, %s, %s)"
)


def apply_decision(write: Write) -> datetime:
    """Write one decision, all or nothing; the database's instant of it.

    Autocommits when no transaction is open. Raises MovedOn or StaleFence when a guard fails; an
    open transaction is then unusable and must be rolled back.
    """
    params: list[Any] = [
        write.run_id,
        write.version,
        write.compact,
        write.state,
        write.waiting_for,
        None if write.end is None else dumps(write.end),
        None if write.subject is None else dumps(write.subject),
        dumps(write.ready) if write.ready else None,
        None if write.claim is None else dumps(write.claim),
        dumps(write.events),
        write.worker,
        write.lease,
    ]
    sql = _APPLY
    if write.settled or write.company:
        sql = _APPLY_MANY
        params.append(dumps(write.settled) if write.settled else None)
        params.append(dumps(write.company) if write.company else None)
    crash_point("apply:before")
    try:
        row = fetch_prepared(sql, params)
    except DatabaseError as error:
        guard = guard_error(error)
        if guard is None:
            raise  # with its cause: the SQLSTATE tells whether it may be tried again
        raise guard from None
    if row is None:
        raise InvariantBroken("orchestrator_apply returned nothing")
    crash_point("apply:after")
    at: datetime = row[0]
    return at


_GUARDS = {_MOVED_ON: MovedOn, _EFFECT_MOVED: EffectMoved, _STALE: StaleFence}
GUARDED = frozenset(_GUARDS)
"""What PostgreSQL says (SQLSTATE) when a guard does not hold."""


def guard_error(error: DatabaseError) -> OrchestratorError | None:
    """Which guard did not hold, or None: then it is another error."""
    kind = _GUARDS.get(getattr(error.__cause__, "sqlstate", None) or "")
    return None if kind is None else kind(str(error))


_BEGIN = (
    "SELECT orchestrator_begin(%s, %s, %s, %s, %s, %s, %s, %s::jsonb, %s::jsonb, %s::jsonb,"
    " %s, %s, %s, %s, %s, %s, %s, %s, %s::jsonb, %s::jsonb)"
)


_BEGIN_ALONE = direct.DirectStatement(
    b"orchestrator_begin",
    b"SELECT orchestrator_begin(%s)" % b", ".join(b"$%d" % (n + 1) for n in range(20)),
    places=20,
    binary=frozenset({0, 1, 3, 5, 6, 10, 11, 12}),
)
_ON, _OFF = b"t", b"f"


def begin_run(
    run: RunRow, write: Write, *, context: Any, time_limit: timedelta, is_wall: bool
) -> None:
    """Write a new run with its first READY steps and first events, in one statement.

    Joins the open transaction. The run is then at version 1.
    """
    crash_point("begin:before")
    fetch_prepared(
        _BEGIN,
        [
            run.id,
            run.tenant,
            run.blueprint_id,
            run.workflow,
            run.workflow_version,
            write.compact,
            write.state,
            dumps(run.input),
            dumps(context),
            dumps(run.trigger),
            run.started_by,
            run.correlation_id,
            run.traceparent,
            run.parent_id,
            run.parent_step,
            run.depth,
            time_limit,
            is_wall,
            dumps(write.ready),
            dumps(write.events),
        ],
    )
    crash_point("begin:after")


def ask_begin(
    run: RunRow,
    write: Write,
    *,
    context: Any,
    time_limit: timedelta,
    is_wall: bool,
    beside: Sequence[direct.Call] = (),
) -> Callable[[], None]:
    """As ``begin_run``, committing by itself: sends the statement, behind those of the caller's own
    in the same transaction, and gives what waits until it is committed. That must be called,
    whatever happens meanwhile; no transaction may be open."""
    values: list[bytes | None] = [
        run.id.bytes,
        run.tenant.encode(),
        b"%d" % run.blueprint_id,
        run.workflow.encode(),
        b"%d" % run.workflow_version,
        write.compact,
        write.state.encode(),
        encoded(run.input),
        encoded(context),
        encoded(run.trigger),
        run.started_by.encode(),
        run.correlation_id.encode(),
        run.traceparent.encode(),
        None if run.parent_id is None else str(run.parent_id).encode(),
        None if run.parent_step is None else str(run.parent_step).encode(),
        b"%d" % run.depth,
        b"%f seconds" % time_limit.total_seconds(),
        _ON if is_wall else _OFF,
        encoded(write.ready),
        encoded(write.events),
    ]
    crash_point("begin:before")
    if beside:
        asked: direct.Asked = direct.ask_together([*beside, (_BEGIN_ALONE, values)])
    else:
        asked = _BEGIN_ALONE.ask(values)

    def committed() -> None:
        asked.answer()
        crash_point("begin:after")

    return committed


def append_event(run_id: UUID, event_type: str, payload: dict[str, Any], actor: str) -> None:
    """A line of history without any other change of the run; call with the run locked.

    The run's version moves on, so that nobody writes from an older reading the same sequence.
    """
    execute(
        "WITH r AS (UPDATE orchestrator_run SET next_seq = next_seq + 1, version = version + 1,"
        "  updated_at = orchestrator_now() WHERE id = %s RETURNING id, next_seq - 1 AS seq)"
        " INSERT INTO orchestrator_event (run_id, seq, type, step, payload, actor, at)"
        " SELECT id, seq, %s, '', %s::jsonb, %s, orchestrator_now() FROM r",
        [run_id, event_type, dumps(payload), actor],
    )
