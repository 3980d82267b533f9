"""Outside services and what keeps work from them: breakers, gates, holds, quotas."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from orchestrator.core.breaker import BreakerState
from orchestrator.core.gates import SCOPES


class Breaker(models.Model):
    """The circuit breaker of one outside service, shared by all workers (SPEC 4.7).

    A row exists from the first failure on. Written under its lock by ``core.breaker`` only, from
    failures and, while it is not closed, from probes. ``buckets`` are the recent calls as
    ``[[start, calls, failures, retries], …]`` in seconds since the epoch: calls that ended well
    are counted when a failure is, so they are a lower bound. ``last_error`` is what a step of
    ``last_tenant`` heard: what it says is that tenant's, the breaker is everybody's.
    """

    service = models.TextField(primary_key=True)
    state = models.TextField(default=BreakerState.CLOSED)
    buckets = models.JSONField(default=list)
    since = models.DateTimeField()
    probe_at = models.DateTimeField(null=True)
    trips = models.PositiveIntegerField(default=0)
    successes = models.PositiveIntegerField(default=0)
    last_error = models.TextField(blank=True, default="")
    last_tenant = models.TextField(blank=True, default="", db_default="")
    updated_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=[s.value for s in BreakerState]),
                name="orchestrator_breaker_state",
            ),
        ]

    def __str__(self) -> str:
        return self.service


class Gate(models.Model):
    """What is shut or limited now; no row, no bound. Small, and read by every claim.

    ``key`` as ``core.gates`` makes it; ``allows`` how many steps behind it may be at work, 0: shut.
    ``look_at`` is when it is looked at again; after ``expires_at`` the row counts for nothing.
    """

    key = models.TextField()
    source = models.TextField()  # breaker, hold, quota, retries
    allows = models.PositiveIntegerField()
    why = models.TextField()
    look_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["key", "source"], name="orchestrator_gate_once"),
        ]

    def __str__(self) -> str:
        return f"{self.key} ({self.source})"


class Hold(models.Model):
    """An operator keeps work from starting: of a service, model, tenant, queue, or all of it.

    The row is the audit too: who held it and why, and who let it go. ``until`` None: until
    somebody releases it.
    """

    id = models.BigAutoField(primary_key=True)
    scope = models.TextField()
    name = models.TextField(blank=True, default="")
    reason = models.TextField()
    actor = models.TextField()
    until = models.DateTimeField(null=True)
    held_at = models.DateTimeField()
    released_at = models.DateTimeField(null=True)
    released_by = models.TextField(blank=True, default="")
    release_reason = models.TextField(blank=True, default="")

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(scope__in=SCOPES), name="orchestrator_hold_scope"),
            models.UniqueConstraint(
                fields=["scope", "name"],
                condition=Q(released_at__isnull=True),
                name="orchestrator_hold_once",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.scope} {self.name}".strip()


class Quota(models.Model):
    """How many steps of a tenant, queue or service may be at work at once (SPEC 3.7)."""

    id = models.BigAutoField(primary_key=True)
    scope = models.TextField()
    name = models.TextField()
    max_in_flight = models.PositiveIntegerField()
    reason = models.TextField(blank=True, default="")
    actor = models.TextField()
    set_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(scope__in=("tenant", "queue", "service")) & Q(max_in_flight__gte=1),
                name="orchestrator_quota_scope",
            ),
            models.UniqueConstraint(fields=["scope", "name"], name="orchestrator_quota_once"),
        ]

    def __str__(self) -> str:
        return f"{self.scope} {self.name}: {self.max_in_flight}"
