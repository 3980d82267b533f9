"""The circuit breaker of one outside service: a pure state machine (SPEC 4.7).

Closed until a storm of failures; then open, until a time that the service itself may have named;
then half-open: one probe at a time, then a growing trickle; closed again after enough successes.
Instants are seconds since the epoch and come in as values, by the database's clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from orchestrator.core.errors import ErrorClass, StepError

BUCKET_S = 5.0
MAX_RETRY_AFTER_S = 86_400.0
_COUNTED = frozenset({ErrorClass.RATE_LIMIT, ErrorClass.TRANSIENT, ErrorClass.TIMEOUT})


class BreakerState(StrEnum):
    """Where a breaker stands."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerPolicy:
    """The measures of all breakers.

    A storm is at least ``failures`` within ``window_s`` that are at least ``ratio`` of the calls.
    An open breaker is looked at after ``open_s``, doubled with each opening in a row up to
    ``max_open_s``. ``successes`` probes close it; at most ``max_probes`` are out at once.
    Retries within the window may be ``retry_floor`` plus ``retry_share`` of the calls.
    A time-out of a step that gave a shared service less than ``telling_timeout_s`` says nothing.
    """

    failures: int = 5
    window_s: float = 30.0
    ratio: float = 0.5
    open_s: float = 5.0
    max_open_s: float = 300.0
    successes: int = 5
    max_probes: int = 16
    retry_share: float = 0.1
    retry_floor: int = 10
    telling_timeout_s: float = 3.0


class Bucket(NamedTuple):
    """Calls that ended within one stretch of ``BUCKET_S``."""

    start: float
    calls: int
    failures: int
    retries: int


class Tally(NamedTuple):
    """Calls that one process has not written down yet; so many of them were retries."""

    calls: int = 0
    retries: int = 0


NOTHING = Tally()


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """What is stored of a breaker. ``trips`` counts the openings in a row; ``successes`` the probes
    that succeeded since it is half-open; ``probe_at`` is when an open one is looked at."""

    state: BreakerState = BreakerState.CLOSED
    buckets: tuple[Bucket, ...] = ()
    since: float = 0.0
    probe_at: float | None = None
    trips: int = 0
    successes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A call that failed as an ailing service makes it fail."""

    retry_after: float | None = None
    was_retry: bool = False
    was_probe: bool = False


def counts(error: StepError) -> bool:
    """Whether the failure speaks against the service, and not against the request or our code."""
    details = error.details or {}
    return error.error_class in _COUNTED and not details.get("defect")


def after_failure(
    breaker: Breaker, policy: BreakerPolicy, now: float, failure: Failure, tally: Tally = NOTHING
) -> Breaker:
    """A call failed; ``tally`` are calls that ended well and were not written down yet."""
    one = Bucket(_start(now), tally.calls + 1, 1, tally.retries + failure.was_retry)
    breaker = replace(breaker, buckets=_added(breaker.buckets, one, policy, now))
    match breaker.state:
        case BreakerState.CLOSED:
            is_storm = _is_storm(breaker.buckets, policy)
            return _opened(breaker, policy, now, failure) if is_storm else breaker
        case BreakerState.OPEN:
            return _put_off(breaker, now, failure)  # a straggler from before
        case BreakerState.HALF_OPEN:
            return _opened(breaker, policy, now, failure) if failure.was_probe else breaker


def after_success(breaker: Breaker, policy: BreakerPolicy, now: float) -> Breaker:
    """A probe succeeded. What ends well while the breaker is open proves nothing new."""
    if breaker.state is not BreakerState.HALF_OPEN:
        return breaker
    successes = breaker.successes + 1
    if successes >= policy.successes:
        return _closed(breaker, now)
    return replace(breaker, successes=successes)


def after_look(breaker: Breaker, policy: BreakerPolicy, now: float, *, idle: bool) -> Breaker:
    """Time has passed. ``idle``: no step waits for the service, and no probe is out; a half-open
    breaker that nobody tries for ``max_open_s`` closes."""
    if breaker.state is BreakerState.OPEN and now >= (breaker.probe_at or 0.0):
        return replace(breaker, state=BreakerState.HALF_OPEN, since=now, successes=0, probe_at=None)
    untried = breaker.state is BreakerState.HALF_OPEN and now >= breaker.since + policy.max_open_s
    return _closed(breaker, now) if untried and idle else breaker


def allowance(breaker: Breaker, policy: BreakerPolicy) -> int | None:
    """How many steps of the service may be at work at once; None: no bound."""
    match breaker.state:
        case BreakerState.CLOSED:
            return None
        case BreakerState.OPEN:
            return 0
        case BreakerState.HALF_OPEN:
            return int(min(2**breaker.successes, policy.max_probes))


def retries_shut_until(breaker: Breaker, policy: BreakerPolicy, now: float) -> float | None:
    """Until when the service's retries have to wait, their budget being spent; None: they may."""
    buckets = _recent(breaker.buckets, policy, now)
    calls = sum(bucket.calls for bucket in buckets)
    left = math.floor(policy.retry_floor + policy.retry_share * calls)
    left -= sum(bucket.retries for bucket in buckets)
    spent = [bucket.start for bucket in buckets if bucket.retries]
    if left > 0 or not spent:
        return None
    return min(spent) + BUCKET_S + policy.window_s


def _is_storm(buckets: Iterable[Bucket], policy: BreakerPolicy) -> bool:
    calls = failures = 0
    for bucket in buckets:
        calls += bucket.calls
        failures += bucket.failures
    return failures >= policy.failures and failures >= policy.ratio * calls


def _opened(breaker: Breaker, policy: BreakerPolicy, now: float, failure: Failure) -> Breaker:
    wait = min(policy.open_s * 2.0 ** min(breaker.trips, 32), policy.max_open_s)
    opened = replace(
        breaker,
        state=BreakerState.OPEN,
        since=now,
        probe_at=now + wait,
        trips=breaker.trips + 1,
        successes=0,
    )
    return _put_off(opened, now, failure)


def _put_off(breaker: Breaker, now: float, failure: Failure) -> Breaker:
    """A wish of the service moves the next look back, never forward."""
    wish = min(failure.retry_after or 0.0, MAX_RETRY_AFTER_S)
    return replace(breaker, probe_at=max(breaker.probe_at or 0.0, now + wish))


def _closed(breaker: Breaker, now: float) -> Breaker:
    return replace(
        breaker,
        state=BreakerState.CLOSED,
        buckets=(),
        since=now,
        probe_at=None,
        trips=0,
        successes=0,
    )


def _start(now: float) -> float:
    return now - now % BUCKET_S


def _recent(buckets: tuple[Bucket, ...], policy: BreakerPolicy, now: float) -> tuple[Bucket, ...]:
    oldest = now - policy.window_s - BUCKET_S
    return tuple(bucket for bucket in buckets if bucket.start > oldest)


def _added(
    buckets: tuple[Bucket, ...], one: Bucket, policy: BreakerPolicy, now: float
) -> tuple[Bucket, ...]:
    recent = _recent(buckets, policy, now)
    if recent and recent[-1].start >= one.start:
        last = recent[-1]
        summed = (last.calls + one.calls, last.failures + one.failures, last.retries + one.retries)
        return (*recent[:-1], Bucket(last.start, *summed))
    return (*recent, one)
