"""Comparing the books of providers with our receipts, each night or when somebody asks."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Any
from uuid import UUID

from django.db.models import Q

from orchestrator.adapters import secrets
from orchestrator.authoring import Listed, ToolSpec, registry
from orchestrator.core.comparing import Mismatch, Receipt, compare
from orchestrator.core.effects import EffectStatus
from orchestrator.core.errors import InvalidRequest
from orchestrator.engine import database_now
from orchestrator.models import Alert, Blueprint, Effect, alert_rows, duty_rows

logger = logging.getLogger(__name__)

DUTY = "compare"
KIND = "provider_mismatch"
EVERY_S = 6 * 3600.0
LOOK_BACK = timedelta(hours=48)
MOST_BACK = timedelta(days=30)
"""An open alert is looked at again from where it began, for so long."""
SETTLES = timedelta(minutes=10)
"""The newest effects are left to the next night: either book may still be writing."""
BEYOND = timedelta(hours=1)
"""How far the two clocks may differ."""
LATE_INTENTS = timedelta(days=7)
"""How long an effect may have been in doubt before its receipt."""
MAX_ENTRIES = 100_000
BUDGET_S = 600.0
CHUNK = 1_000
NAMED = 100


@dataclass(frozen=True, slots=True)
class Asker:
    """What a listing gets: whose book, and the secrets to open it."""

    tenant: str

    def secret(self, name: str) -> str:
        """The secret called ``name``; ``Permanent`` when it is not set."""
        return secrets.store.read(tenant=self.tenant, name=name)


@dataclass(slots=True)
class Comparison:
    """One tool's book for one tenant. ``whole`` False: it was longer than the bound of rows or
    time, so that nothing is called missing. ``error``: it could not be read at all."""

    tool: str
    tenant: str
    since: datetime
    until: datetime
    n_listed: int = 0
    n_receipts: int = 0
    whole: bool = True
    error: str = ""
    mismatches: list[Mismatch] = field(default_factory=list)

    @property
    def key(self) -> str:
        """The key of its alert."""
        return f"{self.tenant}:{self.tool}"

    @property
    def counts(self) -> dict[str, int]:
        """How many mismatches there are of each kind."""
        return dict(Counter(str(mismatch.kind) for mismatch in self.mismatches))


def listing_tools() -> list[str]:
    """The tools whose author named a listing."""
    return [name for name in registry.names() if registry.get(name).listing is not None]


def compare_in_turn() -> list[Comparison] | None:
    """Compare every book, if it is time and nobody else does; None: not our turn."""
    if duty_rows.take_turn(DUTY, every_s=EVERY_S) is None:
        return None
    done = list(compare_all(listing_tools()))
    duty_rows.note(
        DUTY,
        {
            "books": len(done),
            "listed": sum(one.n_listed for one in done),
            "not_read": [one.key for one in done if one.error],
            "mismatches": {one.key: one.counts for one in done if one.mismatches},
        },
    )
    return done


def compare_all(
    tools: Sequence[str], *, tenant: str | None = None, since: datetime | None = None
) -> Iterator[Comparison]:
    """Compare the books of these tools, one tenant after the other, and keep their alerts."""
    every = Blueprint.objects.order_by("tenant").values_list("tenant", flat=True).distinct()
    tenants = list(every) if tenant is None else [tenant]
    for name in tools:
        for whose in tenants:
            comparison = compare_book(registry.get(name), whose, since=since)
            _tell(comparison)
            yield comparison


def compare_book(spec: ToolSpec, tenant: str, *, since: datetime | None = None) -> Comparison:
    """Compare one book with our receipts; nothing is written. Bounded in rows and time."""
    if spec.listing is None:
        raise InvalidRequest(f"tool {spec.name} names no listing", code="no_listing")
    now = database_now()
    begin = since or _begin(spec.name, tenant, now)
    found = Comparison(tool=spec.name, tenant=tenant, since=begin, until=now - SETTLES)
    try:
        listed = spec.listing(Asker(tenant), begin - BEYOND, now + BEYOND)
        entries, found.whole = _read(listed)
    except Exception as error:
        logger.exception("the book of %s could not be read", spec.name)
        found.error = f"{type(error).__name__}: {error}"
        return found
    receipts = list(_receipts(spec.name, tenant, entries, found))
    found.n_listed, found.n_receipts = len(entries), len(receipts)
    found.mismatches = compare(
        entries, receipts, since=found.since, until=found.until, whole=found.whole
    )
    return found


def _begin(tool: str, tenant: str, now: datetime) -> datetime:
    """Two days back, or where an open alert about this book began."""
    open_ = Alert.objects.filter(kind=KIND, key=f"{tenant}:{tool}", closed_at__isnull=True)
    said = open_.values_list("detail__since", flat=True).first()
    usual = now - LOOK_BACK
    return usual if said is None else max(min(datetime.fromisoformat(said), usual), now - MOST_BACK)


def _read(listed: Iterable[Listed]) -> tuple[list[Listed], bool]:
    """The entries, and whether that is all of them."""
    entries: list[Listed] = []
    give_up_at = time.monotonic() + BUDGET_S
    rest = iter(listed)
    while len(entries) <= MAX_ENTRIES and time.monotonic() < give_up_at:
        page = list(islice(rest, CHUNK))
        if not page:
            return entries, True
        entries += page
    return entries, False


def _receipts(
    tool: str, tenant: str, entries: Sequence[Listed], window: Comparison
) -> Iterator[Receipt]:
    """What we hold that may stand for these entries: by their keys, and all of the time around."""
    around = Q(
        tool=tool,
        intended_at__gte=window.since - LATE_INTENTS,
        intended_at__lt=window.until + BEYOND + SETTLES,
    )
    seen: set[str] = set()
    mine = Effect.objects.filter(tenant=tenant)
    keys = [entry.idempotency_key for entry in entries if entry.idempotency_key]
    named = [
        mine.filter(tool=tool, idempotency_key__in=keys[i : i + CHUNK])
        for i in range(0, len(keys), CHUNK)
    ]
    for found in [mine.filter(around), *named]:
        for row in found.iterator(CHUNK):
            if row.idempotency_key not in seen:
                seen.add(row.idempotency_key)
                yield _receipt(row)


def _receipt(row: Effect) -> Receipt:
    return Receipt(
        key=row.idempotency_key,
        status=EffectStatus(row.status),
        external_ref=row.external_ref,
        request_hash=row.request_hash,
        response=row.response,
        settled_at=row.settled_at,
        run_id=str(row.run_id),
    )


def _tell(one: Comparison) -> None:
    """An alert while the books differ or cannot be read; closed when they agree as a whole."""
    if not one.mismatches and not one.error:
        if one.whole:
            alert_rows.close_alert(KIND, one.key)
        return
    counts = ", ".join(f"{n} {kind}" for kind, n in one.counts.items())
    runs = [mismatch.run_id for mismatch in one.mismatches if mismatch.run_id]
    alert_rows.open_alert(
        KIND,
        one.key,
        title=f"The book of {one.tool} and our receipts differ: {counts}"
        if counts
        else f"The book of {one.tool} could not be read: {one.error}",
        detail=_detail(one),
        severity="critical" if counts else "warning",
        tenant=one.tenant,
        run_id=UUID(runs[0]) if runs else None,
    )


def _detail(one: Comparison) -> dict[str, Any]:
    return {
        "tool": one.tool,
        "since": one.since.isoformat(),
        "until": one.until.isoformat(),
        "listed": one.n_listed,
        "whole": one.whole,
        "error": one.error,
        "counts": one.counts,
        "mismatches": [mismatch.as_json() for mismatch in one.mismatches[:NAMED]],
        "runbook": "provider-mismatch",
    }
