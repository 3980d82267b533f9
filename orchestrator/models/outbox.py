"""What must still be told, to other runs and to subscribers."""

from __future__ import annotations

from django.db import models


class Outbox(models.Model):
    """One message written in the transaction that caused it; deleted once handled.

    ``topic``: ``child.ended``, ``child.cancel`` (between runs), ``run.ended``, ``gate.closed``
    (to the subscribers named in settings). ``attempts`` and ``error`` tell of failed tries.
    """

    id = models.BigAutoField(primary_key=True)
    topic = models.TextField()
    run_id = models.UUIDField()
    payload = models.JSONField(default=dict)
    created_at = models.DateTimeField()
    due_at = models.DateTimeField()
    attempts = models.PositiveIntegerField(default=0)
    error = models.TextField(default="", blank=True)

    class Meta:
        indexes = [models.Index(fields=["due_at"], name="orchestrator_outbox_due")]

    def __str__(self) -> str:
        return f"{self.topic} of {self.run_id}"
