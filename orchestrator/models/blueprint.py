"""Immutable, content-addressed definitions: what a run is pinned to."""

from __future__ import annotations

from django.db import models


class Blueprint(models.Model):
    """One published document, frozen. Same tenant, digest and pins: same row.

    ``document`` is the plain JSON of the document, ``canonical`` its canonical bytes, ``digest``
    their SHA-256 (hex). ``pins`` maps child workflow names as written to the digest they were
    resolved to at publish, or ``self``. ``version`` is the number it was first published as.
    """

    id = models.BigAutoField(primary_key=True)
    tenant = models.TextField()
    name = models.TextField()
    digest = models.CharField(max_length=64)
    document = models.JSONField()
    canonical = models.BinaryField()
    pins = models.JSONField(default=dict)
    version = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "digest"], name="orchestrator_blueprint_once")
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.digest[:12]}"


class StepDefinition(models.Model):
    """One step of a blueprint, written at publish; for people and queries, never for running."""

    blueprint = models.ForeignKey(Blueprint, models.CASCADE, related_name="steps")
    key = models.TextField()
    title = models.TextField(blank=True)
    type = models.TextField()
    queue = models.TextField()
    position = models.PositiveIntegerField()
    config = models.JSONField()

    class Meta:
        ordering = ["position"]
        constraints = [
            models.UniqueConstraint(
                fields=["blueprint", "key"], name="orchestrator_step_definition_once"
            )
        ]

    def __str__(self) -> str:
        return self.key


class EdgeDefinition(models.Model):
    """One edge of a blueprint, written at publish; ``route`` ids when a router decides it."""

    blueprint = models.ForeignKey(Blueprint, models.CASCADE, related_name="edges")
    source = models.TextField()
    target = models.TextField()
    on = models.TextField()
    when = models.TextField(blank=True)
    routes = models.JSONField(default=list)
    position = models.PositiveIntegerField()

    class Meta:
        ordering = ["position"]

    def __str__(self) -> str:
        return f"{self.source} -> {self.target}"
