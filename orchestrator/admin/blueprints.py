"""Frozen definitions in the console: steps and edges as the engine runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from orchestrator.admin.readonly import ReadOnlyPages, json_block
from orchestrator.models import Blueprint, EdgeDefinition, StepDefinition

if TYPE_CHECKING:
    Inline = admin.TabularInline[Any, Blueprint]
else:
    Inline = admin.TabularInline


class _Rows(Inline):
    extra = 0
    can_delete = False

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never: a blueprint is frozen."""
        del request, obj
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never: a blueprint is frozen."""
        del request, obj
        return False


class StepInline(_Rows):
    """The steps in the author's order."""

    model = StepDefinition
    fields = ("key", "title", "type", "queue")
    readonly_fields = fields
    verbose_name_plural = "Steps"


class EdgeInline(_Rows):
    """What leads where, and when."""

    model = EdgeDefinition
    fields = ("source", "target", "on", "when", "routes")
    readonly_fields = fields
    verbose_name_plural = "Edges"


@admin.register(Blueprint)
class BlueprintAdmin(ReadOnlyPages[Blueprint]):
    """One published document, frozen; runs are pinned to it."""

    list_display = ("name", "short_digest", "tenant", "created_at")
    list_filter = ("tenant",)
    search_fields = ("name", "digest")
    ordering = ("-id",)
    fields = ("name", "tenant", "digest", "created_at", "pins_text", "document_text")
    readonly_fields = fields
    inlines = (StepInline, EdgeInline)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Blueprint]:
        """Without the canonical bytes, which nobody reads."""
        return super().get_queryset(request).defer("canonical")

    @admin.display(description="digest")
    def short_digest(self, blueprint: Blueprint) -> str:
        """Enough of it to tell two apart."""
        return blueprint.digest[:12]

    @admin.display(description="children")
    def pins_text(self, blueprint: Blueprint) -> str | SafeString:
        """Child workflows and the digests they are pinned to."""
        return json_block(blueprint.pins) if blueprint.pins else "none"

    @admin.display(description="document")
    def document_text(self, blueprint: Blueprint) -> SafeString:
        """The document as JSON."""
        return json_block(blueprint.document)
