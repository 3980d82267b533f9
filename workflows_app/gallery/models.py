"""What the demo services keep: their ledger, and the faults that were asked for."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now


class DemoLedgerEntry(models.Model):
    """One call that a demo service carried out; the same key finds the same entry.

    This is the *other side's* book, the one that an audit compares with the engine's effects.
    """

    tenant = models.CharField(max_length=200)
    service = models.CharField(max_length=50)
    operation = models.CharField(max_length=50)
    idempotency_key = models.CharField(max_length=255, null=True)  # noqa: DJ001 - None: no key
    request = models.JSONField()
    response = models.JSONField()
    run_id = models.CharField(max_length=64, blank=True)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name_plural = "demo ledger entries"
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "service", "operation", "idempotency_key"],
                condition=Q(idempotency_key__isnull=False),
                name="demo_ledger_one_entry_a_key",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.service}.{self.operation} {self.idempotency_key or self.pk}"


class DemoFaultQuerySet(models.QuerySet["DemoFault"]):
    """Faults, by what a demo service asks for."""

    def next_for(self, *, service: str, operation: str) -> DemoFault | None:
        """Take one occurrence of the oldest fault that applies; None when there is none.

        Of two calls at once each takes an occurrence of its own, or none.
        """
        applying = self.filter(
            service=service, operation__in=["", operation], remaining__gt=0
        ).order_by("id")
        for fault in applying:
            if self.filter(pk=fault.pk, remaining__gt=0).update(remaining=F("remaining") - 1):
                return fault
        return None


class DemoFault(models.Model):
    """A failure that the next ``remaining`` calls of a demo service meet."""

    class Kind(models.TextChoices):
        """How a call fails."""

        TRANSIENT = "transient", "unavailable for a moment; nothing is applied"
        RATE_LIMIT = "rate_limit", "too many calls; nothing is applied"
        PERMANENT = "permanent", "refused for good; nothing is applied"
        LOST_ANSWER = "lost_answer", "applied, but the answer is lost on the way"
        SLOW = "slow", "applied, after delay_ms"

    service = models.CharField(max_length=50)
    operation = models.CharField(max_length=50, blank=True, help_text="Empty: every operation.")
    kind = models.CharField(max_length=20, choices=Kind)
    remaining = models.PositiveIntegerField(default=1)
    delay_ms = models.PositiveIntegerField(default=0)

    objects = DemoFaultQuerySet.as_manager()

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.service}.{self.operation or '*'}: {self.kind} x {self.remaining}"
