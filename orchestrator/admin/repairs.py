"""Effects and repairs, in the console: what was done outside, and what operators did about it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from orchestrator.admin.operators import may_operate
from orchestrator.admin.readonly import ReadOnlyPages, json_block, state_badge
from orchestrator.admin.repair_acts import Offers
from orchestrator.models import Blueprint, Effect, Repair


def _run_link(run_id: object) -> SafeString:
    address = reverse("admin:orchestrator_run_change", args=[run_id])
    return format_html('<a href="{}">{}</a>', address, run_id)


@admin.register(Effect)
class EffectAdmin(ReadOnlyPages[Effect]):
    """One business action in the outside world: its key, and what is known of it."""

    change_form_template = "admin/orchestrator/effect/detail.html"
    list_display = ("idempotency_key", "badge", "tool", "external_ref", "intended_at", "tenant")
    list_filter = ("status",)
    search_fields = ("idempotency_key",)
    search_help_text = "The whole key of an effect."
    ordering = ("-id",)
    fields = (
        *("idempotency_key", "badge", "reason", "tool", "of_run", "what", "external_ref"),
        *("intended_at", "settled_at", "request_hash", "response_hash", "response_text"),
    )
    readonly_fields = fields

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Effect], search_term: str
    ) -> tuple[QuerySet[Effect], bool]:
        """Exact matches only: the unique key of each tenant serves them."""
        del request
        key = search_term.strip().replace("\x00", "")
        if not key:
            return queryset, False
        tenants = list(Blueprint.objects.values_list("tenant", flat=True).distinct())
        return queryset.filter(tenant__in=tenants, idempotency_key=key), False

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """The effect, with the way to settle it while nobody knows what became of it."""
        found = (
            Effect.objects.filter(pk=object_id) if object_id.isdigit() else Effect.objects.none()
        )
        effect = found.select_related("step", "run").first()
        extra = {**(extra_context or {})}
        if effect is not None and may_operate(request):
            extra["offers"] = Offers(effect.run).of_effect(effect)
        return super().change_view(request, object_id, form_url, extra)

    @admin.display(description="status")
    def badge(self, effect: Effect) -> SafeString:
        """The status as a word in its colour."""
        return state_badge(effect.status)

    @admin.display(description="run")
    def of_run(self, effect: Effect) -> SafeString:
        """The run, as a link."""
        return _run_link(effect.run_id)

    @admin.display(description="step")
    def what(self, effect: Effect) -> str:
        """Key and item."""
        return str(effect.step)

    @admin.display(description="receipt")
    def response_text(self, effect: Effect) -> SafeString:
        """What the tool answered."""
        return json_block(effect.response)


@admin.register(Repair)
class RepairAdmin(ReadOnlyPages[Repair]):
    """What an operator did to a run, why, and what came of it at once."""

    list_display = ("at", "action", "what", "of_run", "reason", "actor", "role")
    list_display_links = ("at",)
    list_filter = ("action",)
    search_fields = ("run",)
    search_help_text = "The whole id of a run."
    ordering = ("-id",)
    fields = (
        *("at", "action", "what", "of_run", "reason", "actor", "role"),
        *("expected_version", "token", "result_text"),
    )
    readonly_fields = fields

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Repair], search_term: str
    ) -> tuple[QuerySet[Repair], bool]:
        """The repairs of one run."""
        del request
        term = search_term.strip()
        if not term:
            return queryset, False
        try:
            return queryset.filter(run=UUID(term)), False
        except ValueError:
            return queryset.none(), False

    @admin.display(description="run")
    def of_run(self, repair: Repair) -> SafeString:
        """The run, as a link."""
        return _run_link(repair.run_id)

    @admin.display(description="step")
    def what(self, repair: Repair) -> str:
        """Key and item."""
        return f"{repair.step}{repair.scope}"

    @admin.display(description="result")
    def result_text(self, repair: Repair) -> SafeString:
        """The answer as it was given."""
        return json_block(repair.result)
