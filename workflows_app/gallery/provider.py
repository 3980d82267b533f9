"""How the demo services behave: latency, faults, a ledger, and idempotency by key."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from django.conf import settings

from orchestrator.authoring import Listed, Permanent, ToolContext
from workflows_app.gallery.faults import Fault, find_fault
from workflows_app.gallery.models import DemoLedgerEntry

DEFAULT_LATENCY_MS = 40
_FACTS = ("amount_cents", "currency", "refunded", "stage")


def perform(
    ctx: ToolContext,
    *,
    service: str,
    operation: str,
    request: Mapping[str, Any],
    act: Callable[[], dict[str, Any]],
) -> Any:
    """Carry out a call once per key and answer what was answered then.

    The answer is the JSON object of ``act``, which is asked only when the key is new (it may
    raise). The same key with another request is refused for good, as real services do.
    """
    fault = find_fault(service=service, operation=operation, request=request, attempt=ctx.attempt)
    _take_time(ctx, fault)
    if fault is not None and fault.applies_nothing:
        raise _error_of(fault, service)
    entry = find_entry(ctx, service=service, operation=operation)
    if entry is None:
        entry = _record(ctx, service, operation, request=request, response=act())
    if entry.request != dict(request):
        raise Permanent(
            f"{service}: the key {entry.idempotency_key} was used for a different request"
        )
    if fault is not None and fault.error(service) is not None:
        raise _error_of(fault, service)
    return entry.response


def find_entry(ctx: ToolContext, *, service: str, operation: str) -> DemoLedgerEntry | None:
    """What the service has in its book under the call's key; None without key or entry."""
    if ctx.idempotency_key is None:
        return None
    return DemoLedgerEntry.objects.filter(
        tenant=ctx.tenant,
        service=service,
        operation=operation,
        idempotency_key=ctx.idempotency_key,
    ).first()


def list_entries(
    *, tenant: str, service: str, operation: str, since: datetime, until: datetime
) -> Iterator[Listed]:
    """The service's book between two instants, oldest first, as its listing would answer."""
    found = DemoLedgerEntry.objects.filter(
        tenant=tenant, service=service, operation=operation, at__gte=since, at__lt=until
    )
    for entry in found.order_by("id").iterator(1_000):
        yield Listed(
            external_ref=entry.response.get("external_ref", ""),
            idempotency_key=entry.idempotency_key or "",
            at=entry.at,
            facts={name: entry.response[name] for name in _FACTS if name in entry.response},
        )


def reference(prefix: str, *parts: str) -> str:
    """A reference as services give them: the same for the same parts."""
    return f"{prefix}_{hashlib.sha256(chr(31).join(parts).encode()).hexdigest()[:16]}"


def _record(
    ctx: ToolContext,
    service: str,
    operation: str,
    *,
    request: Mapping[str, Any],
    response: dict[str, Any],
) -> DemoLedgerEntry:
    written = {"request": dict(request), "response": response, "run_id": ctx.run_id}
    place = {"tenant": ctx.tenant, "service": service, "operation": operation}
    if ctx.idempotency_key is None:
        return DemoLedgerEntry.objects.create(**place, **written)
    # Two calls with one key at once: the constraint lets one of them write, the other one reads.
    entry, _ = DemoLedgerEntry.objects.get_or_create(
        **place, idempotency_key=ctx.idempotency_key, defaults=written
    )
    return entry


def _take_time(ctx: ToolContext, fault: Fault | None) -> None:
    latency_ms: int = settings.ORCHESTRATOR.get("DEMO_LATENCY_MS", DEFAULT_LATENCY_MS)
    if fault is not None:
        latency_ms += fault.delay_ms
    time.sleep(min(latency_ms / 1000, ctx.time_left()))


def _error_of(fault: Fault, service: str) -> Exception:
    return fault.error(service) or Permanent(f"{service} failed")
