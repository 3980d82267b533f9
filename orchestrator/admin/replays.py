"""Replays in the console: what came of each run's newest one, and of each day's."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.admin import SimpleListFilter
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from orchestrator.admin.readonly import ReadOnlyPages, json_block, state_badge
from orchestrator.models import ReplayCheck, ReplayDay


class VerdictFilter(SimpleListFilter):
    """By what came of it."""

    title = "verdict"
    parameter_name = "verdict"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, str]]:
        """The three there are."""
        del request, model_admin
        return [("differs", "Differs"), ("identical", "Identical"), ("unread", "Not replayed")]

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[ReplayCheck]
    ) -> QuerySet[ReplayCheck]:
        """The checks that fit."""
        del request
        match self.value():
            case "differs":
                return queryset.filter(identical=False)
            case "identical":
                return queryset.filter(identical=True)
            case "unread":
                return queryset.filter(identical__isnull=True)
            case _:
                return queryset


@admin.register(ReplayCheck)
class ReplayCheckAdmin(ReadOnlyPages[ReplayCheck]):
    """The newest replay of each run that was replayed."""

    list_display = ("of_run", "badge", "checked_at", "n_lines", "first_difference")
    list_display_links = ("badge",)
    list_filter = (VerdictFilter,)
    ordering = ("-checked_at",)
    fields = (
        *("of_run", "badge", "checked_at", "n_lines", "decisions", "unread"),
        "difference_text",
    )
    readonly_fields = fields

    @admin.display(description="run")
    def of_run(self, check: ReplayCheck) -> SafeString:
        """The run, as a link."""
        address = reverse("admin:orchestrator_run_change", args=[check.run_id])
        return format_html('<a href="{}">{}</a>', address, check.run_id)

    @admin.display(description="verdict")
    def badge(self, check: ReplayCheck) -> SafeString:
        """Identical, or not."""
        if check.identical is None:
            return state_badge("waiting", "not replayed")
        word = "identical" if check.identical else "differs"
        return state_badge("completed" if check.identical else "failed", word)

    @admin.display(description="first difference")
    def first_difference(self, check: ReplayCheck) -> str:
        """In one line."""
        if not check.difference:
            return check.unread
        return f"{check.difference['sequence']}: expected {check.difference['expected'][:120]}"

    @admin.display(description="first difference")
    def difference_text(self, check: ReplayCheck) -> SafeString | str:
        """What was expected, and what is recorded."""
        return json_block(check.difference) if check.difference else ""


@admin.register(ReplayDay)
class ReplayDayAdmin(ReadOnlyPages[ReplayDay]):
    """How replays came out, day by day."""

    list_display = ("day", "n_checked", "n_identical", "percent", "pace")
    ordering = ("-day",)
    fields = ("day", "n_checked", "n_identical", "percent", "n_lines", "seconds", "pace")
    readonly_fields = fields

    @admin.display(description="identical %")
    def percent(self, day: ReplayDay) -> str:
        """Of those replayed."""
        return f"{100 * day.n_identical / day.n_checked:.2f}" if day.n_checked else ""

    @admin.display(description="events/s")
    def pace(self, day: ReplayDay) -> str:
        """How fast."""
        return f"{day.n_lines / day.seconds:,.0f}" if day.seconds else ""
