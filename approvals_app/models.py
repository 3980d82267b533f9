"""Requests for a decision, who is asked, and what they said; the guarded moves of a request."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING
from uuid import UUID

from django.db import models
from django.db.models import Func, Q

from approvals_app.policy import Choice, Outcome, RequestState
from orchestrator.core.ids import uuid7

if TYPE_CHECKING:
    from django.db.models.fields.related_descriptors import RelatedManager


class DatabaseNow(Func):
    """The database's clock, the one that deadlines live by."""

    function = "orchestrator_now"
    output_field = models.DateTimeField()


def new_request_id() -> UUID:
    """A fresh UUIDv7."""
    return uuid7(unix_ms=time.time_ns() // 1_000_000, random=os.urandom(10))


class RequestQuerySet(models.QuerySet["Request"]):
    """Requests by what people ask for, and the one move they know: closing."""

    def of(self, tenant: str) -> RequestQuerySet:
        """Those of one tenant."""
        return self.filter(tenant=tenant)

    def open(self) -> RequestQuerySet:
        """Those that still wait for a decision."""
        return self.filter(state=RequestState.OPEN)

    def of_step(self, run_id: UUID, *, key: str, scope: str) -> RequestQuerySet:
        """All rounds of one gate of one run."""
        return self.filter(run_id=run_id, key=key, scope=scope)

    def close(self, to: RequestState, *, by: str, outcome: Outcome | None = None) -> int:
        """End the open ones among these; how many this call ended (0: somebody was first)."""
        return self.open().update(
            state=to, outcome=outcome or "", closed_by=by, closed_at=DatabaseNow()
        )


class Request(models.Model):
    """One gate of one run, asking. A step that is tried again asks in a new row.

    ``due_at`` is for people: the engine's timer is the truth about expiry. With
    ``on_timeout: escalate`` it is when the next tier is asked. ``upstream`` is the step's input,
    which the gate hands on; ``starter`` the actor that started the run. ``run_id`` is no foreign
    key on purpose: its check would lock the run's row each time.
    """

    id = models.UUIDField(primary_key=True, default=new_request_id, editable=False)
    tenant = models.TextField()
    run_id = models.UUIDField()
    workflow = models.TextField()
    key = models.TextField(verbose_name="step")
    scope = models.TextField(default="", blank=True)
    attempt = models.PositiveIntegerField()
    title = models.TextField(default="", blank=True)
    message = models.TextField(default="", blank=True)
    form = models.JSONField(null=True)
    quorum = models.PositiveIntegerField(default=1)
    four_eyes = models.BooleanField(default=False)
    starter = models.TextField()
    upstream = models.JSONField(null=True)
    state = models.TextField(
        default=RequestState.OPEN, choices=[(state.value, state.value) for state in RequestState]
    )
    outcome = models.TextField(default="", blank=True)
    opened_at = models.DateTimeField()
    due_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True)
    closed_by = models.TextField(default="", blank=True)

    objects = RequestQuerySet.as_manager()

    if TYPE_CHECKING:
        assignments: RelatedManager[Assignment]
        decisions: RelatedManager[Decision]

    class Meta:
        ordering = ["-id"]
        verbose_name = "approval"
        permissions = [("decide_request", "Can approve and reject")]
        constraints = [
            models.UniqueConstraint(
                fields=["run_id", "key", "scope", "attempt"], name="approvals_request_once"
            ),
            models.UniqueConstraint(
                fields=["run_id", "key", "scope"],
                name="approvals_request_one_open",
                condition=Q(state="open"),
            ),
            models.CheckConstraint(
                condition=Q(state__in=[state.value for state in RequestState]),
                name="approvals_request_state",
            ),
            models.CheckConstraint(
                condition=Q(state="open", closed_at__isnull=True)
                | (~Q(state="open") & Q(closed_at__isnull=False)),
                name="approvals_request_closed_at",
            ),
        ]
        indexes = [
            models.Index(fields=["tenant", "-id"], name="approvals_request_list"),
            models.Index(
                fields=["tenant", "-id"], name="approvals_request_open", condition=Q(state="open")
            ),
        ]

    def __str__(self) -> str:
        return f"{self.workflow} / {self.key}{self.scope}"


class Assignment(models.Model):
    """Somebody who may decide, from an instant on (later ones are the escalation's tiers).

    ``who`` is ``role:…``, ``group:…`` or ``user:…``; tier 0 is asked at once.
    """

    request = models.ForeignKey(Request, models.CASCADE, related_name="assignments")
    who = models.TextField()
    tier = models.PositiveSmallIntegerField(default=0)
    from_at = models.DateTimeField()

    class Meta:
        ordering = ["tier", "id"]
        constraints = [
            models.UniqueConstraint(fields=["request", "who"], name="approvals_assignment_once")
        ]

    def __str__(self) -> str:
        return self.who


class Decision(models.Model):
    """What one person said to one request, kept for ever. One row a person."""

    request = models.ForeignKey(Request, models.CASCADE, related_name="decisions")
    by = models.TextField()
    choice = models.TextField(
        verbose_name="decision", choices=[(choice.value, choice.value) for choice in Choice]
    )
    notes = models.TextField(default="", blank=True)
    data = models.JSONField(null=True)
    at = models.DateTimeField()

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["request", "by"], name="approvals_decision_once"),
            models.CheckConstraint(
                condition=Q(choice__in=[choice.value for choice in Choice]),
                name="approvals_decision_choice",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.choice} by {self.by}"
