"""Effects: one business action in the outside world each, with its intent and its receipt."""

from __future__ import annotations

from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.db.models import Q

from orchestrator.core.effects import EffectStatus
from orchestrator.models.run import Run
from orchestrator.models.step import Step


class Effect(models.Model):
    """One effect. Its key is unique for the tenant, for ever: across runs it happens once.

    The row is the intent, committed before the call; ``response``, ``response_hash`` and
    ``external_ref`` are the receipt, written in the transaction that completes the step.
    ``step`` and ``fence`` name the attempt that holds it, ``reason`` why it is in doubt.
    ``nested``: it is a call that the step's body made, not the step's own effect.
    """

    id = models.BigAutoField(primary_key=True)
    tenant = models.TextField()
    idempotency_key = models.TextField()
    run = models.ForeignKey(Run, models.PROTECT, related_name="effects", db_constraint=False)
    step = models.ForeignKey(Step, models.PROTECT, related_name="effects", db_constraint=False)
    fence = models.BigIntegerField()
    tool = models.TextField()
    request_hash = models.CharField(max_length=64)
    status = models.TextField()
    response = models.JSONField(null=True)
    response_hash = models.CharField(max_length=64, default="", blank=True)
    external_ref = models.TextField(default="", blank=True)
    reason = models.TextField(default="", blank=True)
    intended_at = models.DateTimeField()
    settled_at = models.DateTimeField(null=True)
    nested = models.BooleanField(default=False, db_default=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "idempotency_key"], name="orchestrator_effect_once"
            ),
            models.CheckConstraint(
                condition=Q(status__in=[s.value for s in EffectStatus]),
                name="orchestrator_effect_status",
            ),
        ]
        indexes = [
            # The nightly comparison reads some days; this costs an insert nothing to speak of.
            BrinIndex(fields=["intended_at"], name="orchestrator_effect_days", autosummarize=True),
            models.Index(
                fields=["intended_at"],
                name="orchestrator_effect_open",
                condition=Q(status__in=["intended", "in_doubt"]),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.idempotency_key}: {self.status}"
