"""Breakers at work: what calls of a service came to.

Calls that end well while the breaker is closed are counted in this process alone, and written down
with the next failure. Only failures, and probes, write.
"""

from __future__ import annotations

import logging
import threading
import time
from datetime import UTC, datetime

from django.db import InterfaceError, OperationalError

from orchestrator.conf import engine_settings
from orchestrator.core import breaker as machine
from orchestrator.core.breaker import Breaker, BreakerState, Failure, Tally
from orchestrator.core.compiled import StepPlan
from orchestrator.core.errors import ErrorClass, StepError
from orchestrator.core.gates import gate_key, retries_key
from orchestrator.core.outcomes import Failed, Outcome, StartChild, Waiting
from orchestrator.core.settling import Expanded, NotBegun
from orchestrator.crash import Unit
from orchestrator.engine.gates import cache
from orchestrator.models import breaker_rows, gate_rows
from orchestrator.models.alert_rows import close_alert, open_alert
from orchestrator.models.rows import StepRow

logger = logging.getLogger(__name__)

_NO_CALL = (Expanded, Waiting, StartChild)
_MAX_ERROR = 300


class Tallies:
    """Calls of this process that ended well and are not written down, by service."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, tuple[float, Tally]] = {}

    def count(self, service: str, *, was_retry: bool) -> None:
        """One call ended well."""
        with self._lock:
            tally = self._fresh(service)
            began = self._counts[service][0] if tally.calls else time.monotonic()
            more = Tally(tally.calls + 1, tally.retries + was_retry)
            self._counts[service] = (began, more)

    def take(self, service: str) -> Tally:
        """What was counted within the window; from now on it is the caller's."""
        with self._lock:
            tally = self._fresh(service)
            self._counts.pop(service, None)
        return tally

    def forget(self) -> None:
        """Count anew."""
        with self._lock:
            self._counts.clear()

    def _fresh(self, service: str) -> Tally:
        began, tally = self._counts.get(service, (0.0, Tally()))
        is_old = time.monotonic() - began > engine_settings().breaker.window_s
        return Tally() if is_old else tally


tallies = Tallies()


def note(
    step: StepPlan, row: StepRow, outcome: Outcome | Expanded | NotBegun, *, tenant: str
) -> None:
    """Tell the breaker of the step's service how an attempt ended; call after its commit.

    ``row`` is the step as it ran, for ``tenant``. A database that is away costs the breaker this
    one call.
    """
    service = step.breaker
    if not service or isinstance(outcome, _NO_CALL):
        return
    failed = outcome if isinstance(outcome, Failed) and machine.counts(outcome.error) else None
    if failed is not None and _too_short_to_tell(step, failed):
        return
    was_probe = row.passed == gate_key("service", service)
    note_call(service, failed, tenant=tenant, was_retry=row.n_retries > 0, was_probe=was_probe)


def note_call(
    service: str, failed: Failed | None, *, tenant: str, was_retry: bool, was_probe: bool
) -> None:
    """Tell a breaker how one call ended, outside any transaction; ``failed`` None: well.

    ``was_probe``: the breaker's gate let it through. A database that is away costs the breaker
    this one call.
    """
    try:
        if failed is not None:
            failure = Failure(
                retry_after=failed.retry_after, was_retry=was_retry, was_probe=was_probe
            )
            _note_failure(service, failure, failed, tenant=tenant)
        elif was_probe:
            _note_probe(service)
        else:
            tallies.count(service, was_retry=was_retry)
    except (OperationalError, InterfaceError):
        logger.warning("breaker of %s: the database is away, one call is not counted", service)


def _too_short_to_tell(step: StepPlan, outcome: Failed) -> bool:
    """Whether a shared service had so little time, by the document, that its silence says nothing:
    a document with ``timeout: 10ms`` must not shut it for everybody."""
    timed_out = outcome.error.error_class is ErrorClass.TIMEOUT
    least_s = engine_settings().breaker.telling_timeout_s
    return timed_out and step.breaker == step.service and step.timeout_s < least_s


def note_timeout(step: StepPlan, row: StepRow, *, tenant: str) -> None:
    """An attempt was ended because its time was over."""
    error = StepError(error_class=ErrorClass.TIMEOUT, message="no answer within the time limit")
    note(step, row, Failed(error=error), tenant=tenant)


def _note_failure(service: str, failure: Failure, outcome: Failed, *, tenant: str) -> None:
    tally = tallies.take(service)
    policy = engine_settings().breaker
    error = outcome.error.message[:_MAX_ERROR]
    with Unit("breaker_failure"):
        held = breaker_rows.lock(service)
        after = machine.after_failure(held.breaker, policy, held.now, failure, tally)
        breaker_rows.save(service, after, error=error, tenant=tenant)
        _set_gates(service, held.breaker, after, last=str(outcome.error.error_class))
        shut_until = machine.retries_shut_until(after, policy, held.now)
        if shut_until is not None:
            _shut_retries(service, shut_until)
        _tell(service, held.breaker, after, error)
    cache.forget()


def _note_probe(service: str) -> None:
    with Unit("breaker_probe"):
        held = breaker_rows.lock(service)
        after = machine.after_success(held.breaker, engine_settings().breaker, held.now)
        if after != held.breaker:
            write_move(service, held.breaker, after)
    cache.forget()


def write_move(service: str, before: Breaker, after: Breaker) -> None:
    """Store what a breaker has become, with its gate and its alert; call in a transaction."""
    breaker_rows.save(service, after)
    _set_gates(service, before, after)
    _tell(service, before, after, "")


def _set_gates(service: str, before: Breaker, after: Breaker, *, last: str = "") -> None:
    """``last``: the class of the last failure. Its words may name what is one tenant's alone, and
    whatever waits before the gate shows the reason."""
    key = gate_key("service", service)
    allows = machine.allowance(after, engine_settings().breaker)
    if allows is None:
        if before.state is not BreakerState.CLOSED:
            gate_rows.drop_gate(key, "breaker")
        return
    if after.state is BreakerState.HALF_OPEN:
        why = f"service {service} is being tried again, {allows} at a time"
    else:
        why = f"service {service} is not answering well, its breaker is open"
        why += f" (last: {last})" if last else ""
    gate_rows.put_gate(key, "breaker", allows=allows, why=why, look_at=_instant(after.probe_at))


def _shut_retries(service: str, until: float) -> None:
    why = f"the retry budget of service {service} is spent"
    at = _instant(until)
    gate_rows.put_gate(
        retries_key(service), "retries", allows=0, why=why, look_at=at, expires_at=at
    )


def _instant(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def _tell(service: str, before: Breaker, after: Breaker, error: str) -> None:
    if after.state is BreakerState.OPEN and before.state is not BreakerState.OPEN:
        logger.warning("breaker of service %s opened: %s", service, error)
        detail = {"service": service, "error": error, "trips": after.trips}
        title = f"Service {service} is failing: its breaker is open"
        open_alert("breaker_open", service, title=title, detail=detail)
    elif after.state is BreakerState.CLOSED and before.state is not BreakerState.CLOSED:
        logger.info("breaker of service %s closed", service)
        close_alert("breaker_open", service)
