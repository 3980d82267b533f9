"""Alerts in the console: what somebody has to look at, open ones first to be seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.contrib.admin import SimpleListFilter
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
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

    list_display = ("badge", "kind", "title", "since", "go_to_run")
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

    @admin.display(description="since")
    def since(self, alert: Alert) -> SafeString:
        """When it was opened, and below it how often it was seen, or when it was closed."""
        seen = f"seen {alert.count} times" if alert.count > 1 else ""
        over = f"closed {alert.closed_at:%Y-%m-%d %H:%M:%S}" if alert.closed_at else seen
        return format_html(
            '<span class="when">{}</span><div class="aside">{}</div>',
            f"{alert.opened_at:%Y-%m-%d %H:%M:%S}",
            over,
        )

    @admin.display(description="")
    def go_to_run(self, alert: Alert) -> SafeString | str:
        """A short link; the title names the run."""
        return self._run_link(alert, "the run")

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The list, under its own name: there is nothing to select here."""
        return super().changelist_view(request, {"title": "Alerts", **(extra_context or {})})

    @admin.display(description="run")
    def of_run(self, alert: Alert) -> SafeString | str:
        """The run, as a link."""
        return self._run_link(alert, str(alert.run_id))

    def _run_link(self, alert: Alert, words: str) -> SafeString | str:
        if alert.run_id is None:
            return ""
        address = reverse("admin:orchestrator_run_change", args=[alert.run_id])
        return format_html('<a href="{}">{}</a>', address, words)

    @admin.display(description="detail")
    def detail_text(self, alert: Alert) -> SafeString:
        """What was seen."""
        return json_block(alert.detail)


# The colours of the states of steps serve here too.
_COLOURS = {"info": "ready", "warning": "waiting", "critical": "failed", "closed": "completed"}
