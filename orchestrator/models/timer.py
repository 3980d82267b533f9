"""Stored wake-ups: never early, once, for weeks."""

from __future__ import annotations

from django.db import models

from orchestrator.models.run import Run
from orchestrator.models.step import Step


class Timer(models.Model):
    """A pending wake-up of a step; the row goes in the transaction that applies it.

    ``kind``: ``retry`` and ``repeat`` make the step ready again, ``wait`` ends its wait.
    """

    id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(Run, models.CASCADE, related_name="timers")
    step = models.ForeignKey(Step, models.CASCADE, related_name="timers", db_index=False)
    kind = models.TextField()
    fire_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["step", "kind"], name="orchestrator_timer_once")
        ]
        indexes = [models.Index(fields=["fire_at"], name="orchestrator_timer_due")]

    def __str__(self) -> str:
        return f"{self.kind} of {self.step_id} at {self.fire_at}"
