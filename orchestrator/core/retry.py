"""When to try again: one pure decision."""

from __future__ import annotations

from orchestrator.core.errors import ErrorClass
from orchestrator.core.policies import Retry

_MAX_DOUBLINGS = 64
MAX_WORKER_LOSSES = 3
"""Losses of one step after which it is quarantined (FORMAT section 4, Retry)."""


def next_delay(
    policy: Retry,
    error_class: ErrorClass,
    *,
    n_retries: int,
    n_lost: int,
    jitter: float,
    retry_after: float | None = None,
) -> float | None:
    """Seconds until the next attempt, or None when the step has given up.

    ``n_retries`` counts the retries already used, ``n_lost`` the workers this step has lost, the
    present loss included. ``jitter`` in [0, 1) comes from the caller so that the answer is
    repeatable. A provider's ``retry_after`` stands above ``max_delay``. ``permanent`` is never
    retried; ``worker_lost`` always is, outside ``max_retries`` (FORMAT section 4).
    """
    if error_class is ErrorClass.WORKER_LOST:
        return 0.0 if n_lost < MAX_WORKER_LOSSES else None
    if error_class is ErrorClass.PERMANENT or error_class not in policy.on:
        return None
    if n_retries >= policy.max_retries:
        return None
    base, cap = policy.base_delay.total_seconds(), policy.max_delay.total_seconds()
    growth = (
        2.0 ** min(n_retries, _MAX_DOUBLINGS)
        if policy.backoff == "exponential"
        else n_retries + 1.0
    )
    delay = min(base * growth, cap) + base * jitter
    return max(delay, retry_after) if retry_after is not None else delay
