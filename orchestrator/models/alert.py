"""Alerts: what somebody has to look at, open until it is cured."""

from __future__ import annotations

from typing import Literal, get_args

from django.db import models
from django.db.models import Q

from orchestrator.models.run import Run

Severity = Literal["info", "warning", "critical"]
SEVERITIES: tuple[str, ...] = get_args(Severity)


class Alert(models.Model):
    """One matter, from when it was first seen until it was cured.

    ``kind`` names the rule, ``key`` what it is about within the kind (a run, a step, a service):
    at most one alert of both is open. Seen again while open, ``count`` and ``last_seen_at`` move;
    seen again after it was closed, a new row opens. ``tenant`` is empty for what concerns the
    whole installation. ``run`` has no constraint in the database: writing an alert never waits
    for a run's lock, and an alert may outlive its run.
    """

    id = models.BigAutoField(primary_key=True)
    kind = models.TextField()
    key = models.TextField()
    tenant = models.TextField(blank=True, default="")
    run = models.ForeignKey(
        Run, models.DO_NOTHING, null=True, related_name="alerts", db_constraint=False
    )
    severity = models.TextField()
    title = models.TextField()
    detail = models.JSONField(default=dict)
    opened_at = models.DateTimeField()
    last_seen_at = models.DateTimeField()
    count = models.PositiveIntegerField(default=1)
    closed_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["kind", "key"],
                name="orchestrator_alert_open_once",
                condition=Q(closed_at__isnull=True),
            ),
            models.CheckConstraint(
                condition=Q(severity__in=SEVERITIES), name="orchestrator_alert_severity"
            ),
        ]
        indexes = [
            models.Index(
                fields=["tenant", "-id"],
                name="orchestrator_alert_open",
                condition=Q(closed_at__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind}: {self.title}"
