"""Steps that gave up, in the console."""

from __future__ import annotations

from django.contrib import admin
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from orchestrator.admin.filters import TenantFilter, WorkflowFilter
from orchestrator.admin.readonly import ReadOnlyPages, json_block
from orchestrator.models import DeadLetter


@admin.register(DeadLetter)
class DeadLetterAdmin(ReadOnlyPages[DeadLetter]):
    """Why a step gave up, and in which run."""

    list_display = (
        *("created_at", "reason", "workflow", "what", "message", "attempts", "retried_at"),
        "tenant",
    )
    list_filter = ("reason", WorkflowFilter, TenantFilter)
    list_select_related = ("step",)
    ordering = ("-id",)
    fields = (
        "reason",
        "of_run",
        "what",
        "attempts",
        "service",
        "created_at",
        "retried_at",
        "error_text",
    )
    readonly_fields = fields

    @admin.display(description="step")
    def what(self, letter: DeadLetter) -> str:
        """Key and item."""
        return str(letter.step)

    @admin.display(description="error")
    def message(self, letter: DeadLetter) -> str:
        """The last error in a line."""
        return str(letter.error.get("message", ""))[:120]

    @admin.display(description="run")
    def of_run(self, letter: DeadLetter) -> SafeString:
        """The run, as a link."""
        address = reverse("admin:orchestrator_run_change", args=[letter.run_id])
        return format_html('<a href="{}">{}</a>', address, letter.run_id)

    @admin.display(description="error")
    def error_text(self, letter: DeadLetter) -> SafeString:
        """The whole error."""
        return json_block(letter.error)
