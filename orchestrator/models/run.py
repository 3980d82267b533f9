"""Runs: one execution each, pinned to one blueprint."""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.db.models import Q

from orchestrator.core.states import RUN_TERMINAL, RunState
from orchestrator.models.blueprint import Blueprint

OPEN_STATES = sorted(state.value for state in RunState if state not in RUN_TERMINAL)


class RunQuerySet(models.QuerySet["Run"]):
    """Runs, by what people and sweeps ask for."""

    def of(self, tenant: str) -> RunQuerySet:
        """Those of one tenant."""
        return self.filter(tenant=tenant)

    def open(self) -> RunQuerySet:
        """Those that have not ended."""
        return self.filter(state__in=OPEN_STATES)

    def overdue(self, now: datetime) -> RunQuerySet:
        """Open ones whose own time is over."""
        return self.open().filter(deadline_at__lte=now)


class Run(models.Model):
    """One execution. Written by the engine's guarded SQL only; ``save()`` on it is a defect.

    ``version`` counts every move (the API's ``state_version``); ``next_seq`` is the sequence the
    next history event gets. ``compact`` is the packed snapshot that planning decides from.
    ``deadline_at`` is when the run's own time ends: ``time_limit`` by the clock on the wall when
    ``time_is_wall``, else of working time, and then null while the run waits or is paused.
    ``worked`` is the working time before ``working_since``.
    ``compensation``: none, full or partial, once a run has not completed.
    ``cost_microusd`` covers known prices only; ``cost_unknown`` says some price was unknown.
    """

    id = models.UUIDField(primary_key=True)
    tenant = models.TextField()
    blueprint = models.ForeignKey(
        Blueprint, models.PROTECT, related_name="runs", db_constraint=False
    )
    workflow = models.TextField()
    workflow_version = models.IntegerField()
    state = models.TextField(default=RunState.PENDING)
    waiting_for = models.TextField(default="", blank=True)
    version = models.BigIntegerField(default=0)
    next_seq = models.BigIntegerField(default=1)
    compact = models.BinaryField()
    input = models.JSONField()
    output = models.JSONField(null=True)
    error = models.JSONField(null=True)
    outcome = models.TextField(default="", blank=True)
    compensation = models.TextField(default="", blank=True, db_default="")
    warnings = models.JSONField(default=list)
    context = models.JSONField(null=True)
    trigger = models.JSONField(default=dict)
    started_by = models.TextField()
    correlation_id = models.TextField()
    traceparent = models.TextField(default="", blank=True)
    parent = models.ForeignKey(
        "self", models.PROTECT, null=True, related_name="children", db_index=False
    )
    parent_step = models.UUIDField(null=True)
    depth = models.SmallIntegerField(default=0)
    cost_microusd = models.BigIntegerField(default=0)
    cost_unknown = models.BooleanField(default=False)
    tokens_in = models.BigIntegerField(default=0)
    tokens_out = models.BigIntegerField(default=0)
    time_limit = models.DurationField()
    time_is_wall = models.BooleanField(default=False)
    deadline_at = models.DateTimeField(null=True)
    worked = models.DurationField()
    working_since = models.DateTimeField(null=True)
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    updated_at = models.DateTimeField()

    objects = RunQuerySet.as_manager()

    class Meta:
        indexes = [
            models.Index(fields=["tenant", "-id"], name="orchestrator_run_list"),
            models.Index(fields=["tenant", "workflow", "-id"], name="orchestrator_run_workflow"),
            models.Index(fields=["tenant", "correlation_id"], name="orchestrator_run_corr"),
            models.Index(
                fields=["state", "id"],
                name="orchestrator_run_open",
                condition=Q(state__in=OPEN_STATES),
            ),
            models.Index(
                fields=["deadline_at"],
                name="orchestrator_run_overdue",
                condition=Q(state__in=OPEN_STATES, deadline_at__isnull=False),
            ),
            models.Index(
                fields=["parent"], name="orchestrator_run_parent", condition=Q(parent__isnull=False)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.workflow} {self.id}"
