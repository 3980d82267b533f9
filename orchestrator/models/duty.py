"""Duties: what some process of the installation has to do now and then, whichever it is."""

from __future__ import annotations

from django.db import models


class Duty(models.Model):
    """When a duty was last taken up, and what was seen. ``before`` is the turn before that.

    ``notes`` is small JSON for the next turn and for people: how far it came, what it looked at.
    """

    name = models.TextField(primary_key=True)
    taken_at = models.DateTimeField()
    before = models.DateTimeField(null=True)
    notes = models.JSONField(default=dict)

    class Meta:
        verbose_name_plural = "duties"

    def __str__(self) -> str:
        return self.name
