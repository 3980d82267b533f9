"""Failures on demand: from the table ``DemoFault``, or from magic words in a call's input.

A value in the request (an order id, a reference, a mail address) that begins with one of these
makes the call fail, so that a failure can be had through the API alone:

=============  ==================================================================
``declined-``  refused for good
``flaky-``     unavailable at the first attempt
``down-``      unavailable at every attempt
``busy-``      rate limit at the first attempt, to be tried again after 1 s
``lost-``      applied at the first attempt, but the answer is lost
``slow-``      applied, after 3 s
=============  ==================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.authoring import Permanent, RateLimited, Transient
from workflows_app.gallery.models import DemoFault

Kind = DemoFault.Kind

_MAGIC: Mapping[str, tuple[DemoFault.Kind, bool]] = {
    "declined-": (Kind.PERMANENT, False),
    "flaky-": (Kind.TRANSIENT, True),
    "down-": (Kind.TRANSIENT, False),
    "busy-": (Kind.RATE_LIMIT, True),
    "lost-": (Kind.LOST_ANSWER, True),
    "slow-": (Kind.SLOW, False),
}
_SLOW_MS = 3000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What befalls one call."""

    kind: DemoFault.Kind
    delay_ms: int = 0

    @property
    def applies_nothing(self) -> bool:
        """Whether the call fails before the service acts."""
        return self.kind in (Kind.TRANSIENT, Kind.RATE_LIMIT, Kind.PERMANENT)

    def error(self, service: str) -> Exception | None:
        """What the caller sees; None when the call is only slow."""
        match self.kind:
            case Kind.TRANSIENT:
                return Transient(f"{service} is unavailable", not_applied=True)
            case Kind.RATE_LIMIT:
                return RateLimited(f"{service} takes no more calls now", retry_after=1)
            case Kind.PERMANENT:
                return Permanent(f"{service} declined the request")
            case Kind.LOST_ANSWER:
                return Transient(f"{service} did not answer in time")
            case _:
                return None


def find_fault(
    *, service: str, operation: str, request: Mapping[str, Any], attempt: int
) -> Fault | None:
    """What befalls this call, if anything; a fault from the table is used up by it."""
    magic = _magic_fault(request, attempt=attempt)
    if magic is not None:
        return magic
    stored = DemoFault.objects.next_for(service=service, operation=operation)
    if stored is None:
        return None
    return Fault(kind=DemoFault.Kind(stored.kind), delay_ms=stored.delay_ms)


def _magic_fault(request: Mapping[str, Any], *, attempt: int) -> Fault | None:
    texts = [value for value in request.values() if isinstance(value, str)]
    for word, (kind, first_only) in _MAGIC.items():
        if first_only and attempt > 1:
            continue
        if any(text.startswith(word) for text in texts):
            return Fault(kind=kind, delay_ms=_SLOW_MS if kind is Kind.SLOW else 0)
    return None
