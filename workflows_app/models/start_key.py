"""Idempotency keys of starts."""

from __future__ import annotations

from django.db import models


class StartKey(models.Model):
    """One accepted start, written in the run's own transaction and kept as long as the run.

    ``fingerprint`` is the SHA-256 of the canonical JSON body; ``answer`` the body that was
    answered, given again on a repetition. A refused start writes no row and so uses up no key.
    """

    tenant = models.CharField(max_length=63)
    workflow = models.CharField(max_length=63)
    key = models.CharField(max_length=255)
    fingerprint = models.CharField(max_length=64)
    run_id = models.UUIDField()
    answer = models.JSONField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "workflow", "key"], name="workflows_start_key_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.workflow}: {self.key}"
