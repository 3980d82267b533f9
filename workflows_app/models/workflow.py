"""Workflows by name, and their numbered versions."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from orchestrator.models import Blueprint
from workflows_app.models.tenant import Tenant


class Workflow(models.Model):
    """A name that a tenant owns. Publishing locks this row, so that numbers are given once."""

    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="workflows", db_index=False)
    name = models.CharField(max_length=63)
    title = models.TextField(blank=True)
    description = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "name"], name="workflows_workflow_once")
        ]

    def __str__(self) -> str:
        return self.name


class WorkflowVersion(models.Model):
    """One published document: a number that points at a frozen blueprint.

    ``source`` is the text as it was sent, in ``media_type``. The default is what a start without
    ``version`` runs; a retired version starts no more runs, those under way go on.
    """

    class State(models.TextChoices):
        """Whether new runs may start."""

        PUBLISHED = "published"
        RETIRED = "retired"

    workflow = models.ForeignKey(Workflow, models.PROTECT, related_name="versions", db_index=False)
    number = models.PositiveIntegerField()
    blueprint = models.ForeignKey(Blueprint, models.PROTECT, related_name="+")
    source = models.TextField()
    media_type = models.CharField(max_length=40)
    state = models.CharField(max_length=10, choices=State, default=State.PUBLISHED)
    is_default = models.BooleanField(default=False)
    published_by = models.TextField()
    published_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["workflow", "-number"]
        constraints = [
            models.UniqueConstraint(fields=["workflow", "number"], name="workflows_version_once"),
            models.UniqueConstraint(
                fields=["workflow", "blueprint"], name="workflows_version_document_once"
            ),
            models.UniqueConstraint(
                fields=["workflow"], condition=Q(is_default=True), name="workflows_version_default"
            ),
            models.CheckConstraint(
                condition=Q(is_default=False) | Q(state="published"),
                name="workflows_version_default_published",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.workflow} version {self.number}"
