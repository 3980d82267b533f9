"""Steps that have begun, their unsuccessful attempts, and those that gave up."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Coalesce

from orchestrator.models.run import Run


class Step(models.Model):
    """One step of a run, or one item of its for_each; a row exists from READY on.

    ``plain_timeout_s`` is set on a step that a message may take without a decision (see
    ``orchestrator_take`` in sql/apply.sql): its time limit in seconds. ``gates`` are the keys of
    the gates of its service and model; ``passed`` is the limited gate that let it through and
    counts it until it settles. While it waits before a gate, ``waiting_key`` is that gate's key.

    Steps still blocked, or skipped, stand in the run's compact state only. ``scope`` is empty for
    a plain step and ``[index]`` for an item. ``fence`` grows with every claim: a write that holds
    an older one changes nothing. ``lease_until`` is never later than ``timeout_at``. A for_each
    at work is ``running`` without a lease and has ``items_total``. ``previous`` is the output of
    the last round of a repeat; ``waiting_key`` the signal or gate the step waits for.
    """

    id = models.UUIDField(primary_key=True)
    run = models.ForeignKey(
        Run, models.CASCADE, related_name="steps", db_index=False, db_constraint=False
    )
    key = models.TextField()
    scope = models.TextField(default="", blank=True)
    position = models.IntegerField()
    index = models.IntegerField(null=True)
    type = models.TextField()
    queue = models.TextField()
    state = models.TextField()
    waiting_for = models.TextField(default="", blank=True)
    waiting_key = models.TextField(default="", blank=True)
    why = models.TextField(default="", blank=True)
    attempt = models.IntegerField(default=0)
    n_retries = models.IntegerField(default=0)
    n_lost = models.IntegerField(default=0)
    round = models.IntegerField(default=1)
    fence = models.BigIntegerField(default=0)
    worker = models.TextField(default="", blank=True)
    lease_until = models.DateTimeField(null=True)
    timeout_at = models.DateTimeField(null=True)
    plain_timeout_s = models.FloatField(null=True)
    dispatched_at = models.DateTimeField(null=True)
    n_dispatched = models.IntegerField(default=0)
    item = models.JSONField(null=True)
    items_total = models.IntegerField(null=True)
    input = models.JSONField(null=True)
    output = models.JSONField(null=True)
    previous = models.JSONField(null=True)
    error = models.JSONField(null=True)
    covered_by = models.TextField(default="", blank=True)
    gates = ArrayField(models.TextField(), null=True)
    passed = models.TextField(default="", blank=True, db_default="")
    cost_microusd = models.BigIntegerField(default=0, null=True)
    tokens_in = models.BigIntegerField(default=0)
    tokens_out = models.BigIntegerField(default=0)
    model = models.TextField(default="", blank=True)
    ready_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "key", "scope"], name="orchestrator_step_once"),
        ]
        indexes = [
            models.Index(  # models/ready_pages.py
                F("queue"),
                Coalesce("dispatched_at", "ready_at"),
                name="orchestrator_step_ready",
                condition=Q(state="ready"),
            ),
            models.Index(
                fields=["lease_until"],
                name="orchestrator_step_leased",
                condition=Q(state="running", lease_until__isnull=False),
            ),
            models.Index(
                fields=["waiting_for", "run"],
                name="orchestrator_step_waiting",
                condition=Q(state="waiting"),
            ),
            models.Index(
                fields=["state", "run"],
                name="orchestrator_step_parked",
                condition=Q(state="retrying") | Q(state="running", lease_until__isnull=True),
            ),
            models.Index(
                fields=["waiting_key", "ready_at"],
                name="orchestrator_step_gated",
                condition=Q(state="waiting", waiting_for="service"),
            ),
            models.Index(
                fields=["passed"],
                name="orchestrator_step_passed",
                condition=Q(state="ready") & ~Q(passed=""),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.key}{self.scope}"


class Attempt(models.Model):
    """One attempt that did not succeed, kept with its error (SPEC 4.4: evidence)."""

    id = models.BigAutoField(primary_key=True)
    step = models.ForeignKey(Step, models.CASCADE, related_name="attempts")
    number = models.PositiveIntegerField()
    round = models.PositiveIntegerField(default=1)
    fence = models.BigIntegerField()
    worker = models.TextField(blank=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField()
    outcome = models.TextField()  # retrying, failed, timed_out, worker_lost, in_doubt, late
    error = models.JSONField(null=True)

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"attempt {self.number} of {self.step_id}"


class DeadLetter(models.Model):
    """A step that gave up, or that a person has to settle; partitioned by tenant, workflow, service
    and region.

    ``region``: the label behind ``@`` in the step's queue. ``retried_at``: when the step was set to
    run again, by whatever way; ``settled_at``: when a person (``settled_by``) closed it by hand,
    with ``settlement`` as the reason. Both null: it is still open.
    """

    id = models.BigAutoField(primary_key=True)
    step = models.ForeignKey(Step, models.CASCADE, related_name="dead_letters")
    run = models.ForeignKey(Run, models.CASCADE, related_name="dead_letters")
    tenant = models.TextField()
    workflow = models.TextField()
    service = models.TextField(blank=True)
    region = models.TextField(default="", blank=True, db_default="")
    reason = models.TextField()  # exhausted, permanent, quarantined, compensation, irreversible
    error = models.JSONField()
    attempts = models.PositiveIntegerField()
    created_at = models.DateTimeField()
    retried_at = models.DateTimeField(null=True)
    settled_at = models.DateTimeField(null=True)
    settled_by = models.TextField(default="", blank=True, db_default="")
    settlement = models.TextField(default="", blank=True, db_default="")

    class Meta:
        indexes = [
            models.Index(fields=["tenant", "workflow", "-id"], name="orchestrator_dead_letters"),
            models.Index(
                fields=["tenant", "-id"],
                name="orchestrator_letters_open",
                condition=Q(retried_at__isnull=True, settled_at__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.reason}: {self.step_id}"
