"""The demo services' book, to look at; faults, to be ordered."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from workflows_app.gallery.models import DemoFault, DemoLedgerEntry


@admin.register(DemoLedgerEntry)
class DemoLedgerEntryAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # not generic when it runs
    """What the demo services carried out; read only."""

    list_display = ["at", "tenant", "service", "operation", "idempotency_key", "run_id"]
    list_filter = ["service", "operation", "tenant"]
    search_fields = ["idempotency_key", "run_id"]
    date_hierarchy = "at"

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody writes into the book by hand."""
        del request
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody writes into the book by hand."""
        del request, obj
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody writes into the book by hand."""
        del request, obj
        return False


@admin.register(DemoFault)
class DemoFaultAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # not generic when it runs
    """Failures that the next calls of a demo service meet; made to be ordered here."""

    list_display = ["service", "operation", "kind", "remaining", "delay_ms"]
    list_filter = ["service", "kind"]
