"""Alerts in the console: what somebody has to look at, open ones first to be seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.contrib.admin import SimpleListFilter
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from orchestrator.admin.filters import TenantFilter
from orchestrator.admin.readonly import ReadOnlyPages, json_block
from orchestrator.models import Alert
from orchestrator.models.alert import SEVERITIES


class OpenFilter(SimpleListFilter):
    """Open alerts, unless others are asked for."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Open ones need no word: they are the default."""
        del request, model_admin
        return [("closed", "Closed"), ("all", "All")]

    def choices(self, changelist: ChangeList) -> Iterator[dict[str, Any]]:  # type: ignore[override]
        """The default under its own name."""
        first, *others = super().choices(changelist)
        yield {**first, "display": "Open"}
        yield from others  # type: ignore[misc]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Alert]) -> QuerySet[Alert]:
        """The alerts that fit."""
        del request
        if self.value() == "all":
            return queryset
        return queryset.filter(closed_at__isnull=self.value() != "closed")


class SeverityFilter(SimpleListFilter):
    """By how bad it is."""

    title = "severity"
    parameter_name = "severity"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The three there are."""
        del request, model_admin
        return [(word, word.capitalize()) for word in SEVERITIES]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Alert]) -> QuerySet[Alert]:
        """The alerts that fit."""
        del request
        return queryset.filter(severity=self.value()) if self.value() else queryset


@admin.register(Alert)
class AlertAdmin(ReadOnlyPages[Alert]):
    """What was noticed, since when, and whether it is cured; the runbook of its kind says more."""

    list_display = ("badge", "kind", "title", "of_run", "opened_at", "last_seen_at", "count")
    list_display_links = ("title",)
    list_filter = (OpenFilter, "kind", SeverityFilter, TenantFilter)
    ordering = ("-id",)
    fields = (
        *("badge", "kind", "key", "title", "severity", "of_run", "tenant", "count"),
        *("opened_at", "last_seen_at", "closed_at", "detail_text"),
    )
    readonly_fields = fields

    @admin.display(description="state")
    def badge(self, alert: Alert) -> SafeString:
        """Its severity while it is open, else that it is closed."""
        word = "closed" if alert.closed_at else alert.severity
        return format_html('<span class="state state-{}">{}</span>', _COLOURS[word], word)

    @admin.display(description="run")
    def of_run(self, alert: Alert) -> SafeString | str:
        """The run, as a link."""
        if alert.run_id is None:
            return ""
        address = reverse("admin:orchestrator_run_change", args=[alert.run_id])
        return format_html('<a href="{}">{}</a>', address, alert.run_id)

    @admin.display(description="detail")
    def detail_text(self, alert: Alert) -> SafeString:
        """What was seen."""
        return json_block(alert.detail)


# The colours of the states of steps serve here too.
_COLOURS = {"info": "waiting", "warning": "retrying", "critical": "failed", "closed": "completed"}
