"""Gates and who stands before them: small statements, all by the database's clock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from orchestrator.core.gates import Gate, split_key
from orchestrator.models.statements import execute, fetch_all_prepared, fetch_prepared

TRICKLE = 50
"""Steps let go at once when their gate is gone and that have not settled yet."""
_LIVE = "(g.expires_at IS NULL OR g.expires_at > orchestrator_now())"


@dataclass(frozen=True, slots=True)
class InLine:
    """A step that is to be parked, or let go."""

    run_id: UUID
    step_id: UUID


def live_gates() -> list[Gate]:
    """Every gate that counts now."""
    found = fetch_all_prepared(
        "SELECT g.key, g.source, g.allows, g.why, coalesce(to_char(g.look_at AT TIME ZONE 'UTC',"  # noqa: S608 - constant text
        f" 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'), '') FROM orchestrator_gate g WHERE {_LIVE}",
        [],
    )
    return [
        Gate(key=key, source=source, allows=allows, why=why, look_at=look_at)
        for key, source, allows, why, look_at in found
    ]


def put_gate(
    key: str,
    source: str,
    *,
    allows: int,
    why: str,
    look_at: datetime | None = None,
    expires_at: datetime | None = None,
) -> None:
    """Set up a gate, or change it."""
    execute(
        "INSERT INTO orchestrator_gate AS g (key, source, allows, why, look_at, expires_at)"
        " VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (key, source) DO UPDATE SET"
        "  allows = excluded.allows, why = excluded.why, look_at = excluded.look_at,"
        "  expires_at = excluded.expires_at",
        [key, source, allows, why, look_at, expires_at],
    )


def note_crowd(key: str, *, why: str, for_s: float) -> None:
    """A queue is too long, as far as is known, for the next ``for_s`` seconds."""
    execute(
        "INSERT INTO orchestrator_gate AS g (key, source, allows, why, expires_at)"
        " VALUES (%s, 'depth', 1, %s, orchestrator_now() + make_interval(secs => %s))"
        " ON CONFLICT (key, source) DO UPDATE SET why = excluded.why,"
        "  expires_at = excluded.expires_at",
        [key, why, for_s],
    )


def drop_gate(key: str, source: str) -> None:
    """Nothing of this kind stands there any more."""
    execute("DELETE FROM orchestrator_gate WHERE key = %s AND source = %s", [key, source])


def drop_expired() -> int:
    """Take away the gates whose time is over; how many."""
    row = fetch_prepared(
        "WITH gone AS (DELETE FROM orchestrator_gate WHERE expires_at <= orchestrator_now()"
        " RETURNING 1) SELECT count(*) FROM gone",
        [],
    )
    return 0 if row is None else int(row[0])


def any_gate() -> bool:
    """Whether anything is shut or limited at all."""
    return fetch_prepared("SELECT 1 FROM orchestrator_gate LIMIT 1", []) is not None


def any_shut() -> bool:
    """Whether anything lets nothing through."""
    return (
        fetch_prepared("SELECT 1 FROM orchestrator_gate WHERE allows = 0 LIMIT 1", []) is not None
    )


def parked_keys() -> list[str]:
    """The gates, present or gone, that steps wait before: one index probe for each."""
    found = fetch_all_prepared(
        "WITH RECURSIVE k AS ("
        " (SELECT waiting_key FROM orchestrator_step WHERE state = 'waiting'"
        "  AND waiting_for = 'service' ORDER BY waiting_key LIMIT 1)"
        " UNION ALL SELECT (SELECT s.waiting_key FROM orchestrator_step s"
        "   WHERE s.state = 'waiting' AND s.waiting_for = 'service'"
        "   AND s.waiting_key > k.waiting_key ORDER BY s.waiting_key LIMIT 1)"
        "  FROM k WHERE k.waiting_key IS NOT NULL)"
        " SELECT waiting_key FROM k WHERE waiting_key IS NOT NULL",
        [],
    )
    return [key for (key,) in found]


def count_parked(tenant: str | None = None) -> dict[str, int]:
    """How many steps, of one tenant or of all, wait before each gate."""
    found = fetch_all_prepared(
        "SELECT s.waiting_key, count(*) FROM orchestrator_step s"
        " JOIN orchestrator_run r ON r.id = s.run_id"
        " WHERE s.state = 'waiting' AND s.waiting_for = 'service'"
        " AND (%s::text IS NULL OR r.tenant = %s) GROUP BY s.waiting_key",
        [tenant, tenant],
    )
    return {key: int(n) for key, n in found}


def next_in_line(key: str, limit: int) -> list[InLine]:
    """Who is let go next: in turns between tenants, in turns between runs, the oldest first.

    Paused runs keep their place.
    """
    found = fetch_all_prepared(
        "SELECT run_id, id FROM ("
        " SELECT run_id, id, ready_at,"
        "  row_number() OVER (PARTITION BY tenant ORDER BY n_of_run, ready_at, id) AS n_of_tenant"
        " FROM (SELECT s.run_id, s.id, s.ready_at, r.tenant,"
        "   row_number() OVER (PARTITION BY s.run_id ORDER BY s.ready_at, s.id) AS n_of_run"
        "  FROM orchestrator_step s JOIN orchestrator_run r ON r.id = s.run_id"
        "  WHERE s.state = 'waiting' AND s.waiting_for = 'service' AND s.waiting_key = %s"
        "  AND r.state <> 'paused') a) b"
        " ORDER BY n_of_tenant, ready_at, id LIMIT %s",
        [key, limit],
    )
    return [InLine(*row) for row in found]


def room(key: str, *, lock: bool = False) -> int:
    """How many more steps may pass the gate now, by what the rows say; never negative.

    ``lock``: take the gate's rows, so that nobody else counts meanwhile; call with the run locked.
    """
    suffix = " FOR UPDATE" if lock else ""
    found = fetch_all_prepared(
        "SELECT g.source, g.allows FROM orchestrator_gate g"  # noqa: S608 - constant text
        f" WHERE g.key = %s AND {_LIVE} ORDER BY g.source{suffix}",
        [key],
    )
    if not found:
        return max(TRICKLE - _passed(key), 0)
    left = [allows - _at_work(key, source) for source, allows in found if allows]
    return max(min(left), 0) if len(left) == len(found) else 0


def _at_work(key: str, source: str) -> int:
    return _passed(key) if source == "breaker" else _in_flight(key)


def _passed(key: str) -> int:
    """Steps that this gate has let through and that have not settled. What was at work before a
    breaker opened is none of its probes."""
    row = fetch_prepared(
        "SELECT (SELECT count(*) FROM orchestrator_step WHERE state = 'ready' AND passed = %s"
        "   AND passed <> '')"
        " + (SELECT count(*) FROM orchestrator_step WHERE state = 'running'"
        "   AND lease_until IS NOT NULL AND passed = %s)",
        [key, key],
    )
    return 0 if row is None else int(row[0])


_RUNNING_OF = {
    "service": "%s = ANY(s.gates)",
    "model": "%s = ANY(s.gates)",
    "queue": "s.queue = substr(%s, 7)",
    "tenant": "r.tenant = substr(%s, 8)",
}


def _in_flight(key: str) -> int:
    scope, _ = split_key(key)
    row = fetch_prepared(
        "SELECT (SELECT count(*) FROM orchestrator_step WHERE state = 'ready' AND passed = %s"  # noqa: S608 - constant text
        "   AND passed <> '')"
        " + (SELECT count(*) FROM orchestrator_step s JOIN orchestrator_run r ON r.id = s.run_id"
        "   WHERE s.state = 'running' AND s.lease_until IS NOT NULL"
        f"   AND {_RUNNING_OF.get(scope, '%s IS NOT NULL')})",
        [key, key],
    )
    return 0 if row is None else int(row[0])


def has_line(key: str) -> bool:
    """Whether somebody waits before the gate already; nobody overtakes."""
    row = fetch_prepared(
        "SELECT 1 FROM orchestrator_step WHERE state = 'waiting' AND waiting_for = 'service'"
        " AND waiting_key = %s LIMIT 1",
        [key],
    )
    return row is not None


def change_line(step_id: UUID, old: str, gate: Gate) -> None:
    """The step waits before another gate from now on; call with the run locked."""
    execute(
        "UPDATE orchestrator_step SET waiting_key = %s, why = %s"
        " WHERE id = %s AND state = 'waiting' AND waiting_for = 'service' AND waiting_key = %s",
        [gate.key, gate.why, step_id, old],
    )
