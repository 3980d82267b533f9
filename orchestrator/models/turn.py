"""Turns of conversations with models, and the aliases that the console sets."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from orchestrator.models.run import Run
from orchestrator.models.step import Step


class Turn(models.Model):
    """One turn of an agent, or the answer that a router went by; written once, never changed.

    ``conversation`` counts within the step's round, ``number`` within the conversation, both from
    1. ``kind`` is ``model`` or ``tool``, ``name`` the ``provider:model`` or the tool; ``content``
    as ``executors.journal.Turn`` has it. ``cost_microusd`` null: price unknown; ``price`` says by
    what it was reckoned. ``fence`` and ``attempt`` name the attempt that it was made in.
    ``fingerprint`` is that of the question.
    """

    id = models.BigAutoField(primary_key=True)
    tenant = models.TextField()
    workflow = models.TextField()
    run = models.ForeignKey(Run, models.CASCADE, related_name="turns", db_constraint=False)
    step = models.ForeignKey(Step, models.CASCADE, related_name="turns")
    round = models.PositiveIntegerField(default=1)
    conversation = models.PositiveIntegerField()
    number = models.PositiveIntegerField()
    kind = models.TextField()
    name = models.TextField()
    content = models.JSONField()
    fingerprint = models.CharField(max_length=64)
    attempt = models.PositiveIntegerField()
    fence = models.BigIntegerField()
    tokens_in = models.BigIntegerField(default=0)
    tokens_out = models.BigIntegerField(default=0)
    cost_microusd = models.BigIntegerField(default=0, null=True)
    price = models.TextField(default="", blank=True)
    seconds = models.FloatField(default=0)
    at = models.DateTimeField()

    class Meta:
        ordering = ["step", "round", "conversation", "number"]
        constraints = [
            models.UniqueConstraint(
                fields=["step", "round", "conversation", "number"], name="orchestrator_turn_once"
            ),
            models.CheckConstraint(
                condition=Q(kind__in=["model", "tool"]), name="orchestrator_turn_kind"
            ),
        ]
        indexes = [
            models.Index(fields=["run"], name="orchestrator_turn_run"),
            models.Index(fields=["tenant", "at"], name="orchestrator_turn_day"),
        ]

    def __str__(self) -> str:
        return f"turn {self.number} of {self.step_id}: {self.name}"


class ModelAlias(models.Model):
    """What an alias leads to from ``at`` on, in the order of fail-over; the newest row of a name
    stands, the older ones are the record. No targets: what the settings say stands again."""

    id = models.BigAutoField(primary_key=True)
    name = models.TextField()
    targets = ArrayField(models.TextField())
    actor = models.TextField()
    reason = models.TextField()
    at = models.DateTimeField()

    class Meta:
        ordering = ["-id"]
        verbose_name = "model alias"
        verbose_name_plural = "model aliases"
        indexes = [models.Index(fields=["name", "-id"], name="orchestrator_alias_newest")]

    def __str__(self) -> str:
        return f"{self.name}: {', '.join(self.targets) or 'as in the settings'}"
