"""When a step is tried again (FORMAT section 1 and 4, Retry)."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.errors import ErrorClass, StepError
from orchestrator.core.outcomes import MAX_WISH_S, Failed
from orchestrator.core.policies import Retry
from orchestrator.core.retry import next_delay


def delay(policy: Retry, n_retries: int = 0, **more: object) -> float | None:
    given = {"error_class": ErrorClass.TRANSIENT, "n_lost": 0, "jitter": 0.0, **more}
    return next_delay(policy, n_retries=n_retries, **given)  # type: ignore[arg-type]


def test_exponential_delays_double_up_to_the_cap() -> None:
    policy = Retry(max_retries=9, max_delay=timedelta(seconds=20))
    assert [delay(policy, n) for n in range(6)] == [2, 4, 8, 16, 20, 20]


def test_linear_delays_grow_by_the_base_up_to_the_cap() -> None:
    policy = Retry(max_retries=9, backoff="linear", max_delay=timedelta(seconds=5))
    assert [delay(policy, n) for n in range(4)] == [2, 4, 5, 5]


@given(st.integers(0, 2000), st.floats(0, 1, exclude_max=True))
def test_jitter_adds_less_than_the_base(n_retries: int, jitter: float) -> None:
    policy = Retry(max_retries=3000)
    plain = delay(policy, n_retries)
    shaken = delay(policy, n_retries, jitter=jitter)
    assert plain is not None
    assert shaken is not None
    assert plain <= shaken < plain + 2 or shaken == plain + 2 * jitter


def test_the_last_retry_is_the_last() -> None:
    assert delay(Retry(max_retries=2), 1) is not None
    assert delay(Retry(max_retries=2), 2) is None
    assert delay(Retry(max_retries=0)) is None


def test_permanent_is_never_retried_even_when_listed() -> None:
    policy = Retry(on=frozenset({ErrorClass.PERMANENT}))
    assert delay(policy, error_class=ErrorClass.PERMANENT) is None


def test_a_class_that_is_not_listed_is_not_retried() -> None:
    assert delay(Retry(), error_class=ErrorClass.SCHEMA_ERROR) is None
    assert delay(Retry(), error_class=ErrorClass.CHILD_FAILED) is None


def test_a_lost_worker_is_retried_outside_the_policy_up_to_three_losses() -> None:
    policy = Retry(max_retries=0, on=frozenset())
    losses = [delay(policy, error_class=ErrorClass.WORKER_LOST, n_lost=n) for n in (1, 2, 3)]
    assert losses == [0.0, 0.0, None]


def test_the_providers_wish_stands_above_the_cap_and_never_shortens() -> None:
    assert delay(Retry(), retry_after=500.0) == 500.0
    assert delay(Retry(), retry_after=0.5) == 2.0


@pytest.mark.parametrize(
    ("wish", "kept"),
    [(2, 2), (0, 0), (1e18, MAX_WISH_S), (-1, None), (math.nan, None), (math.inf, None)],
)
def test_a_wish_that_no_clock_can_meet_is_none_or_a_year(wish: float, kept: float | None) -> None:
    error = StepError(error_class=ErrorClass.TRANSIENT, message="later")
    assert Failed(error=error, retry_after=wish).retry_after == kept
