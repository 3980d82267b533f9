"""What is shut, limited or ailing, as people look at it: one read, beside the hot path."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from orchestrator.authoring import registry
from orchestrator.core.breaker import BreakerState
from orchestrator.core.gates import gate_key, owner_of, split_key
from orchestrator.models import Breaker, Hold, Quota, gate_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePicture:
    """A service, model, tenant, queue, or all work (``global``), and what keeps it from starting.

    ``state``: ``held``, else the breaker's ``open`` or ``half_open``, else ``limited`` (a quota) or
    ``closed`` (nothing keeps it). ``failures`` and ``calls`` are those of the last half minute, as
    far as they were written down. ``parked``: steps that wait for it.
    """

    scope: str
    name: str
    state: str
    parked: int
    since: datetime | None = None
    next_probe_at: datetime | None = None
    failures: int = 0
    calls: int = 0
    trips: int = 0
    last_error: str = ""
    held_by: str = ""
    held_reason: str = ""
    held_since: datetime | None = None
    held_until: datetime | None = None
    max_in_flight: int | None = None

    @property
    def key(self) -> str:
        """Scope and name in one word."""
        return gate_key(self.scope, self.name)


def services(tenant: str | None = None) -> list[ServicePicture]:
    """Everything that is held, limited or has a breaker, and every service that a tool names.

    ``tenant``: only services and models, and of what other tenants do nothing but the numbers: no
    service that is theirs (``erp@other``), none of their steps, no word of their errors.
    """
    breakers = {gate_key("service", row.service): row for row in Breaker.objects.all()}
    held = {gate_key(r.scope, r.name): r for r in Hold.objects.filter(released_at__isnull=True)}
    quotas = {gate_key(row.scope, row.name): row for row in Quota.objects.all()}
    parked = gate_rows.count_parked(tenant)
    keys = {*breakers, *held, *quotas, *_known_services()}
    keys |= {key for key in parked if split_key(key)[0] != "retries"}
    if tenant is not None:
        known = {*_known_services(), *held, *quotas, *parked}
        known |= {key for key, row in breakers.items() if row.last_tenant == tenant}
        keys = {key for key in keys & known if _concerns(key, tenant)}
    return [
        _picture(
            key,
            breakers.get(key),
            held.get(key),
            quotas.get(key),
            parked=_parked(key, parked),
            tenant=tenant,
        )
        for key in sorted(keys)
    ]


def _concerns(key: str, tenant: str) -> bool:
    scope, name = split_key(key)
    return scope == "model" or (scope == "service" and owner_of(name) in ("", tenant))


def _known_services() -> Iterable[str]:
    found = (registry.get(name).service for name in registry.names())
    return (gate_key("service", service) for service in found if service)


def _parked(key: str, parked: dict[str, int]) -> int:
    scope, name = split_key(key)
    retries = parked.get(f"retries:{name}", 0) if scope == "service" else 0
    return parked.get(key, 0) + retries


def _picture(
    key: str,
    breaker: Breaker | None,
    hold: Hold | None,
    quota: Quota | None,
    *,
    parked: int,
    tenant: str | None,
) -> ServicePicture:
    scope, name = split_key(key)
    tells = breaker is not None and tenant in (None, breaker.last_tenant)
    buckets = breaker.buckets if breaker is not None else []
    return ServicePicture(
        scope=scope,
        name=name,
        state=_state(breaker, hold, quota),
        parked=parked,
        since=breaker.since if breaker is not None else None,
        next_probe_at=breaker.probe_at if breaker is not None else None,
        failures=sum(bucket[2] for bucket in buckets),
        calls=sum(bucket[1] for bucket in buckets),
        trips=breaker.trips if breaker is not None else 0,
        last_error=breaker.last_error if breaker is not None and tells else "",
        held_by=hold.actor if hold is not None else "",
        held_reason=hold.reason if hold is not None else "",
        held_since=hold.held_at if hold is not None else None,
        held_until=hold.until if hold is not None else None,
        max_in_flight=quota.max_in_flight if quota is not None else None,
    )


def _state(breaker: Breaker | None, hold: Hold | None, quota: Quota | None) -> str:
    if hold is not None:
        return "held"
    if breaker is not None and breaker.state != BreakerState.CLOSED:
        return str(breaker.state)
    return "limited" if quota is not None else "closed"
