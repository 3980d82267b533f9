"""The append-only, gapless history of runs."""

from __future__ import annotations

from django.db import models


class Event(models.Model):
    """One transition. A trigger in the database refuses UPDATE and DELETE outside retention.

    ``step`` is the step's key with its scope (``pages[3]``), empty for the run itself.
    ``id`` and ``xid`` let exporters read in commit order; the table is partitioned by run.
    """

    pk = models.CompositePrimaryKey("run_id", "seq")
    run_id = models.UUIDField()
    seq = models.BigIntegerField()
    type = models.TextField()
    step = models.TextField(default="", blank=True)
    payload = models.JSONField(default=dict)
    at = models.DateTimeField()
    actor = models.TextField(default="", blank=True)

    class Meta:
        managed = False  # partitioned: the migration creates it in SQL
        db_table = "orchestrator_event"
        ordering = ["run_id", "seq"]

    def __str__(self) -> str:
        return f"{self.seq} {self.type}"
