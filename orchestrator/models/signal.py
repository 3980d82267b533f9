"""Messages to runs, kept from arrival: first write wins, consumed once."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from orchestrator.models.run import Run


class Signal(models.Model):
    """One message to a run. The same id with the same payload again is a no-op.

    ``name`` is a declared signal, or the key of a gate; ``consumed_by`` the step that took it.
    ``payload_hash`` is the SHA-256 of the canonical payload.
    """

    id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(Run, models.CASCADE, related_name="signals", db_index=False)
    name = models.TextField()
    scope = models.TextField(default="", blank=True)
    signal_id = models.TextField()
    payload = models.JSONField(null=True)
    payload_hash = models.CharField(max_length=64)
    actor = models.TextField(default="", blank=True)
    received_at = models.DateTimeField()
    consumed_by = models.UUIDField(null=True)
    consumed_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["run", "name", "signal_id"], name="orchestrator_signal_once"
            )
        ]
        indexes = [
            models.Index(
                fields=["run", "name", "id"],
                name="orchestrator_signal_open",
                condition=Q(consumed_by__isnull=True),
            )
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.signal_id}"
