"""The breaker's state machine: storms open it, probes close it, budgets hold retries back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.breaker import (
    Breaker,
    BreakerPolicy,
    BreakerState,
    Failure,
    Tally,
    after_failure,
    after_look,
    after_success,
    allowance,
    counts,
    retries_shut_until,
)
from orchestrator.core.errors import ErrorClass, StepError

POLICY = BreakerPolicy()
NOW = 1_000_000.0
PLAIN, PROBE = Failure(), Failure(was_probe=True)


def stormy(n: int = POLICY.failures, failure: Failure = PLAIN, at: float = NOW) -> Breaker:
    breaker = Breaker()
    for _ in range(n):
        breaker = after_failure(breaker, POLICY, at, failure)
    return breaker


def half_open() -> Breaker:
    breaker = stormy()
    assert breaker.probe_at is not None
    return after_look(breaker, POLICY, breaker.probe_at, idle=False)


def test_it_opens_with_the_failure_that_makes_the_storm_and_not_before() -> None:
    assert stormy(POLICY.failures - 1).state is BreakerState.CLOSED
    assert stormy(POLICY.failures).state is BreakerState.OPEN


def test_few_failures_among_many_calls_do_not_open_it() -> None:
    breaker = Breaker()
    for _ in range(20):
        breaker = after_failure(breaker, POLICY, NOW, PLAIN, Tally(calls=3))

    assert breaker.state is BreakerState.CLOSED


def test_failures_that_are_older_than_the_window_are_forgotten() -> None:
    breaker = stormy(POLICY.failures - 1)

    later = after_failure(breaker, POLICY, NOW + POLICY.window_s + 6, PLAIN)

    assert later.state is BreakerState.CLOSED
    assert sum(bucket.failures for bucket in later.buckets) == 1


def test_retry_after_is_the_earliest_probe() -> None:
    breaker = stormy(failure=Failure(retry_after=90))

    assert breaker.probe_at == NOW + 90
    early = after_look(breaker, POLICY, NOW + 89.9, idle=True)
    assert early.state is BreakerState.OPEN
    assert after_look(breaker, POLICY, NOW + 90, idle=True).state is BreakerState.HALF_OPEN


def test_a_straggler_may_put_the_probe_off_and_never_bring_it_forward() -> None:
    breaker = stormy(failure=Failure(retry_after=90))

    assert after_failure(breaker, POLICY, NOW + 1, PLAIN).probe_at == NOW + 90
    later = after_failure(breaker, POLICY, NOW + 1, Failure(retry_after=200))
    assert later.probe_at == NOW + 201
    assert later.trips == 1


def test_half_open_lets_one_through_then_a_growing_trickle_then_closes() -> None:
    breaker, seen = half_open(), []
    while breaker.state is BreakerState.HALF_OPEN:
        seen.append(allowance(breaker, POLICY))
        breaker = after_success(breaker, POLICY, NOW)

    assert seen == [1, 2, 4, 8, 16]
    assert breaker.state is BreakerState.CLOSED
    assert allowance(breaker, POLICY) is None
    assert breaker.trips == 0


def test_a_failed_probe_opens_it_for_longer_each_time_up_to_a_bound() -> None:
    breaker, waits = half_open(), []
    for _ in range(9):
        opened = after_failure(breaker, POLICY, NOW, PROBE)
        assert opened.state is BreakerState.OPEN
        assert opened.probe_at is not None
        waits.append(opened.probe_at - NOW)
        breaker = after_look(opened, POLICY, opened.probe_at, idle=False)

    assert waits == [10, 20, 40, 80, 160, 300, 300, 300, 300]


def test_a_failure_from_before_the_opening_is_no_probe() -> None:
    breaker = half_open()

    assert after_failure(breaker, POLICY, NOW, PLAIN).state is BreakerState.HALF_OPEN


def test_half_open_and_untried_it_closes_in_the_end_but_not_while_somebody_waits() -> None:
    breaker = half_open()
    late = breaker.since + POLICY.max_open_s

    assert after_look(breaker, POLICY, late, idle=False).state is BreakerState.HALF_OPEN
    assert after_look(breaker, POLICY, late - 1, idle=True).state is BreakerState.HALF_OPEN
    assert after_look(breaker, POLICY, late, idle=True).state is BreakerState.CLOSED


@pytest.mark.parametrize("kind", list(ErrorClass))
def test_only_what_an_ailing_service_answers_counts(kind: ErrorClass) -> None:
    ailing = {ErrorClass.RATE_LIMIT, ErrorClass.TRANSIENT, ErrorClass.TIMEOUT}

    assert counts(StepError(error_class=kind, message="x")) is (kind in ailing)


def test_a_defect_of_the_tool_does_not_speak_against_the_service() -> None:
    error = StepError(error_class=ErrorClass.TRANSIENT, message="x", details={"defect": True})

    assert not counts(error)


def test_retries_beyond_their_budget_wait_until_the_oldest_leave_the_window() -> None:
    breaker = Breaker()
    retried = Failure(was_retry=True)
    for n in range(POLICY.retry_floor):
        assert retries_shut_until(breaker, POLICY, NOW) is None, n
        breaker = after_failure(breaker, POLICY, NOW, retried, Tally(calls=1))

    breaker = after_failure(breaker, POLICY, NOW, retried)
    breaker = after_failure(breaker, POLICY, NOW, retried)
    until = retries_shut_until(breaker, POLICY, NOW)
    assert until == NOW + 5 + POLICY.window_s
    assert retries_shut_until(breaker, POLICY, until) is None


def test_many_calls_make_room_for_many_retries() -> None:
    breaker = after_failure(Breaker(), POLICY, NOW, PLAIN, Tally(calls=1000, retries=100))

    assert retries_shut_until(breaker, POLICY, NOW) is None


_ACTS = st.lists(
    st.tuples(
        st.sampled_from(["fail", "probe fails", "probe succeeds", "look"]),
        st.floats(0, 400),
        st.one_of(st.none(), st.floats(0, 1000)),
        st.integers(0, 10),
    ),
    max_size=60,
)


@given(_ACTS)
def test_whatever_happens_the_machine_keeps_its_word(
    acts: list[tuple[str, float, float | None, int]],
) -> None:
    breaker, now, wish = Breaker(), NOW, 0.0
    for act, passes, retry_after, calls in acts:
        before, now = breaker, now + passes
        if act == "look":
            breaker = after_look(breaker, POLICY, now, idle=calls == 0)
        elif act == "probe succeeds":
            breaker = after_success(breaker, POLICY, now)
        else:
            failure = Failure(retry_after=retry_after, was_probe=act != "fail")
            breaker = after_failure(breaker, POLICY, now, failure, Tally(calls))
            wish = max(wish, now + (retry_after or 0)) if breaker.state == "open" else 0.0
        allowed = allowance(breaker, POLICY)
        assert (allowed is None) is (breaker.state is BreakerState.CLOSED)
        assert (allowed == 0) is (breaker.state is BreakerState.OPEN)
        assert (breaker.probe_at is not None) is (breaker.state is BreakerState.OPEN)
        assert len(breaker.buckets) <= POLICY.window_s / 5 + 2
        if before.state is BreakerState.OPEN and breaker.state is BreakerState.HALF_OPEN:
            assert before.probe_at is not None
            assert now >= before.probe_at >= wish
        if before.state is BreakerState.OPEN:
            assert breaker.state is not BreakerState.CLOSED
        if breaker.state is BreakerState.OPEN:
            assert breaker.probe_at is not None
            longest = max(POLICY.max_open_s, 1000)
            assert breaker.probe_at <= now + longest
        assert replace(breaker) == breaker
