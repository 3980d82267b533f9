"""Bulk retries: which dead letters an operator chose, and what became of each."""

from __future__ import annotations

from django.db import models

from orchestrator.models.step import DeadLetter


class BulkRetry(models.Model):
    """One operator's choice of dead letters, retried one by one, with one reason.

    ``chosen_by`` says how they were chosen, for people: the filter, or that they were picked.
    ``role``: the roles of whoever asked.
    """

    id = models.UUIDField(primary_key=True)
    chosen_by = models.JSONField()
    reason = models.TextField()
    actor = models.TextField()
    role = models.TextField(blank=True)
    total = models.PositiveIntegerField()
    created_at = models.DateTimeField()

    class Meta:
        verbose_name_plural = "bulk retries"

    def __str__(self) -> str:
        return f"{self.total} dead letters: {self.reason[:60]}"


class BulkItem(models.Model):
    """One dead letter of a bulk retry.

    ``status`` is empty until it was handled, then ``retried`` or ``refused``, with ``code`` and
    ``detail``. ``expected_version``: the run's state version when it was chosen.
    """

    id = models.BigAutoField(primary_key=True)
    bulk = models.ForeignKey(BulkRetry, models.CASCADE, related_name="items", db_index=False)
    letter = models.ForeignKey(DeadLetter, models.CASCADE, related_name="+")
    expected_version = models.BigIntegerField()
    status = models.TextField(blank=True, default="", db_default="")
    code = models.TextField(blank=True, default="", db_default="")
    detail = models.TextField(blank=True, default="", db_default="")
    handled_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["bulk", "status", "id"], name="orchestrator_bulk_items")]
        constraints = [
            models.UniqueConstraint(fields=["bulk", "letter"], name="orchestrator_bulk_once")
        ]

    def __str__(self) -> str:
        return f"letter {self.letter_id}: {self.status or 'left'}"
