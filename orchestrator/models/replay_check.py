"""What replays came to: the newest for each run, and a sum for each day."""

from __future__ import annotations

from django.db import models

from orchestrator.models.run import Run


class ReplayCheck(models.Model):
    """The newest replay of one run.

    ``identical`` null: the history could not be replayed, and ``unread`` says why. ``n_lines``:
    how far the history went then; the run may have gone on since. ``difference``: the first one,
    ``{sequence, expected, recorded}``. ``run`` has no constraint in the database: a check never
    waits for a run's lock.
    """

    run = models.OneToOneField(
        Run,
        models.DO_NOTHING,
        primary_key=True,
        related_name="replay_check",
        db_constraint=False,
    )
    checked_at = models.DateTimeField(db_index=True)
    n_lines = models.BigIntegerField()
    decisions = models.PositiveIntegerField()
    identical = models.BooleanField(null=True)
    unread = models.TextField(blank=True, default="")
    difference = models.JSONField(null=True)

    def __str__(self) -> str:
        return f"replay of {self.run_id}"


class ReplayDay(models.Model):
    """A day's replays, by whatever asked for them: how many runs, how many were identical, and how
    many lines of history in how many seconds."""

    day = models.DateField(primary_key=True)
    n_checked = models.BigIntegerField(default=0)
    n_identical = models.BigIntegerField(default=0)
    n_lines = models.BigIntegerField(default=0)
    seconds = models.FloatField(default=0)

    def __str__(self) -> str:
        return f"{self.day}: {self.n_identical} of {self.n_checked} identical"
