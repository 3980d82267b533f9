"""Holds and quotas as rows, each written together with its gate."""

from __future__ import annotations

from datetime import datetime

from orchestrator.models.statements import execute, fetch_all_prepared, fetch_prepared


def insert_hold(
    scope: str, name: str, *, reason: str, actor: str, until: datetime | None
) -> int | None:
    """A new hold's id; None when it is held already. An ended one is closed first."""
    end_holds()
    row = fetch_prepared(
        "INSERT INTO orchestrator_hold (scope, name, reason, actor, until, held_at, released_by,"
        " release_reason) VALUES (%s, %s, %s, %s, %s, orchestrator_now(), '', '')"
        " ON CONFLICT (scope, name) WHERE released_at IS NULL DO NOTHING RETURNING id",
        [scope, name, reason, actor, until],
    )
    return None if row is None else int(row[0])


def release_hold(scope: str, name: str, *, reason: str, actor: str) -> int | None:
    """The id of the hold that is over now; None when there was none."""
    row = fetch_prepared(
        "UPDATE orchestrator_hold SET released_at = orchestrator_now(), released_by = %s,"
        " release_reason = %s WHERE scope = %s AND name = %s AND released_at IS NULL RETURNING id",
        [actor, reason, scope, name],
    )
    return None if row is None else int(row[0])


def end_holds() -> list[tuple[str, str]]:
    """Holds whose time is over are released, by the system; their scopes and names."""
    found = fetch_all_prepared(
        "UPDATE orchestrator_hold SET released_at = orchestrator_now(),"
        " released_by = 'system:until', release_reason = 'its time was over'"
        " WHERE released_at IS NULL AND until <= orchestrator_now() RETURNING scope, name",
        [],
    )
    return [(scope, name) for scope, name in found]


def is_future(instant: datetime) -> bool:
    """Whether the instant is still to come, by the database's clock."""
    row = fetch_prepared("SELECT %s > orchestrator_now()", [instant])
    return bool(row and row[0])


def put_quota(scope: str, name: str, *, max_in_flight: int, reason: str, actor: str) -> None:
    """Set the quota, or change it."""
    execute(
        "INSERT INTO orchestrator_quota (scope, name, max_in_flight, reason, actor, set_at)"
        " VALUES (%s, %s, %s, %s, %s, orchestrator_now())"
        " ON CONFLICT (scope, name) DO UPDATE SET max_in_flight = excluded.max_in_flight,"
        "  reason = excluded.reason, actor = excluded.actor, set_at = excluded.set_at",
        [scope, name, max_in_flight, reason, actor],
    )


def drop_quota(scope: str, name: str) -> bool:
    """Take the quota away; False when there was none."""
    row = fetch_prepared(
        "DELETE FROM orchestrator_quota WHERE scope = %s AND name = %s RETURNING id", [scope, name]
    )
    return row is not None
