"""Steps that gave up, in the console."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin import ModelAdmin, SimpleListFilter
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from orchestrator import engine
from orchestrator.admin.bulk_choice import BulkChoice, retry_all_address
from orchestrator.admin.filters import TenantFilter, WorkflowFilter
from orchestrator.admin.operators import actor_of, may_operate, roles_of
from orchestrator.admin.readonly import ReadOnlyPages, json_block
from orchestrator.admin.reasons import ReasonForm, token_of
from orchestrator.core.errors import OrchestratorError
from orchestrator.models import DeadLetter

_OPEN = Q(retried_at=None, settled_at=None)


def _is_open(letter: DeadLetter) -> bool:
    return letter.retried_at is None and letter.settled_at is None


class LetterStateFilter(SimpleListFilter):
    """Open ones, those a person has to settle, those that were closed."""

    title = "standing"
    parameter_name = "standing"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, str]]:
        """The choices."""
        del request, model_admin
        return [
            ("open", "Open"),
            ("person", "A person has to settle it"),
            ("retried", "Runs again"),
            ("settled", "Settled by hand"),
        ]

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[DeadLetter]
    ) -> QuerySet[DeadLetter]:
        """The letters that fit."""
        del request
        match self.value():
            case "open":
                return queryset.filter(_OPEN)
            case "person":
                return queryset.filter(_OPEN, reason__in=("compensation", "irreversible"))
            case "retried":
                return queryset.filter(retried_at__isnull=False)
            case "settled":
                return queryset.filter(settled_at__isnull=False)
            case _:
                return queryset


class ServiceFilter(SimpleListFilter):
    """By the outside service, as the documents name them."""

    title = "service"
    parameter_name = "service"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Iterator[Any]:
        """The services of the newest letters."""
        del request, model_admin
        newest = DeadLetter.objects.order_by("-id").values_list("service", flat=True)[:1000]
        return ((name, name) for name in sorted({name for name in newest if name}))

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[DeadLetter]
    ) -> QuerySet[DeadLetter]:
        """The letters that fit."""
        del request
        value = self.value()
        return queryset if value is None else queryset.filter(service=value)


@admin.register(DeadLetter)
class DeadLetterAdmin(BulkChoice, ReadOnlyPages[DeadLetter]):
    """Why a step gave up, and in which run."""

    list_display = (
        *("created_at", "reason", "workflow", "what", "message", "attempts", "standing"),
        *("service", "region", "tenant"),
    )
    list_filter = (LetterStateFilter, "reason", WorkflowFilter, ServiceFilter, TenantFilter)
    change_form_template = "admin/orchestrator/deadletter/detail.html"
    change_list_template = "admin/orchestrator/deadletter/change_list.html"
    list_select_related = ("step",)
    actions = ("retry_chosen",)
    ordering = ("-id",)
    fields = (
        "reason",
        "of_run",
        "what",
        "attempts",
        "service",
        "region",
        "tenant",
        "created_at",
        "retried_at",
        "settled_at",
        "settled_by",
        "settlement",
        "error_text",
    )
    readonly_fields = fields

    def get_urls(self) -> list[URLPattern]:
        """The confirmation pages beside the usual ones."""
        settle = self.admin_site.admin_view(self.settle_view)
        retry = self.admin_site.admin_view(self.retry_view)
        return [
            path("<int:letter_id>/settle/", settle, name="orchestrator_deadletter_settle"),
            path("retry/", retry, name="orchestrator_deadletter_retry"),
            *super().get_urls(),
        ]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The list, with the way to retry all that it shows."""
        address = retry_all_address(request.GET) if may_operate(request) else None
        extra = {"title": "Dead letters", "retry_all": address, **(extra_context or {})}
        return super().changelist_view(request, extra)

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """The letter, with the way to close it while it is open."""
        letter = DeadLetter.objects.filter(pk=object_id).first() if object_id.isdigit() else None
        settles = letter is not None and _is_open(letter) and may_operate(request)
        extra = {**(extra_context or {}), "settles": settles}
        return super().change_view(request, object_id, form_url, extra)

    def settle_view(self, request: HttpRequest, letter_id: int) -> HttpResponse:
        """GET asks for the reason, POST closes the letter; nothing happens by a link."""
        letter = DeadLetter.objects.select_related("step").filter(pk=letter_id).first()
        if letter is None:
            raise Http404
        if not may_operate(request):
            raise PermissionDenied
        form = ReasonForm(request.POST if request.method == "POST" else None)
        if request.method == "POST" and form.is_valid():
            self._settle(request, letter, form.cleaned_data["reason"])
            address = reverse("admin:orchestrator_deadletter_change", args=[letter.pk])
            return HttpResponseRedirect(address)
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": f"Settle {letter.step} by hand?",
            "letter": letter,
            "token": token_of(request),
            "form": form,
        }
        return TemplateResponse(request, "admin/orchestrator/deadletter/settle.html", context)

    def _settle(self, request: HttpRequest, letter: DeadLetter, reason: str) -> None:
        try:
            engine.settle_letter(
                letter.pk,
                tenant=letter.tenant,
                reason=reason,
                actor=actor_of(request),
                role=roles_of(request),
                token=token_of(request),
            )
        except OrchestratorError as refusal:
            messages.error(request, f"Not settled: {refusal}.")
            return
        self.log_change(request, letter, f"Settled by hand: {reason}")
        messages.success(request, f"{letter.step} is settled.")

    @admin.display(description="stands")
    def standing(self, letter: DeadLetter) -> str:
        """Open, or how it was closed."""
        if letter.settled_at is not None:
            return "settled by hand"
        return "open" if letter.retried_at is None else "runs again"

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
