"""Repairs: what operators did to runs, with their reasons; the row is the audit."""

from __future__ import annotations

from django.db import models

from orchestrator.models.run import Run


class Repair(models.Model):
    """One act, written in its own transaction. The same token again answers ``result``.

    ``expected_version`` is the state version the operator had seen, where one was given;
    ``fingerprint`` the SHA-256 of what was asked; ``role`` the roles of whoever asked.
    """

    id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(Run, models.PROTECT, related_name="repairs", db_index=False)
    token = models.TextField()
    fingerprint = models.CharField(max_length=64)
    action = models.TextField()
    step = models.TextField(blank=True)
    scope = models.TextField(blank=True)
    reason = models.TextField()
    actor = models.TextField()
    role = models.TextField(blank=True)
    expected_version = models.BigIntegerField(null=True)
    result = models.JSONField()
    at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "token"], name="orchestrator_repair_once")
        ]

    def __str__(self) -> str:
        return f"{self.action} {self.step}{self.scope}".strip()
