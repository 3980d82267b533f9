"""Breakers as rows: read under their lock, written back with the gate that they make."""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from orchestrator.core.breaker import Breaker, BreakerState, Bucket
from orchestrator.models.statements import dumps, execute, fetch_all_prepared, fetch_prepared

_EPOCH = "extract(epoch FROM {})::float8"


@dataclass(frozen=True, slots=True)
class Locked:
    """A breaker under its row lock, and the database's present instant."""

    breaker: Breaker
    now: float


def lock(service: str) -> Locked:
    """The breaker of a service, made when there is none; call inside a transaction, last."""
    execute(
        "INSERT INTO orchestrator_breaker (service, state, buckets, since, trips, successes,"
        " last_error, updated_at) SELECT %s, 'closed', '[]', t, 0, 0, '', t"
        " FROM orchestrator_now() t ON CONFLICT (service) DO NOTHING",
        [service],
    )
    row = fetch_prepared(
        f"SELECT state, buckets::text, {_EPOCH.format('since')}, {_EPOCH.format('probe_at')},"  # noqa: S608 - constant text
        f" trips, successes, {_EPOCH.format('orchestrator_now()')}"
        " FROM orchestrator_breaker WHERE service = %s FOR UPDATE",
        [service],
    )
    if row is None:
        raise LookupError(f"the breaker of {service} has gone")
    state, buckets, since, probe_at, trips, successes, now = row
    breaker = Breaker(
        state=BreakerState(state),
        buckets=tuple(Bucket(*bucket) for bucket in orjson.loads(buckets)),
        since=since,
        probe_at=probe_at,
        trips=trips,
        successes=successes,
    )
    return Locked(breaker, now)


def save(
    service: str, breaker: Breaker, *, error: str | None = None, tenant: str | None = None
) -> None:
    """Write it back; ``error`` is what the service answered last, to a step of ``tenant``."""
    execute(
        "UPDATE orchestrator_breaker SET state = %s, buckets = %s::jsonb,"
        " since = to_timestamp(%s), probe_at = to_timestamp(%s), trips = %s, successes = %s,"
        " last_error = coalesce(%s, last_error), last_tenant = coalesce(%s, last_tenant),"
        " updated_at = orchestrator_now()"
        " WHERE service = %s",
        [
            str(breaker.state),
            dumps([list(bucket) for bucket in breaker.buckets]),
            breaker.since,
            breaker.probe_at,
            breaker.trips,
            breaker.successes,
            error,
            tenant,
            service,
        ],
    )


def to_look_at() -> list[str]:
    """The services whose open breaker is due, and those that are half-open."""
    found = fetch_all_prepared(
        "SELECT service FROM orchestrator_breaker WHERE state = 'half_open'"
        " OR (state = 'open' AND probe_at <= orchestrator_now())",
        [],
    )
    return [service for (service,) in found]
