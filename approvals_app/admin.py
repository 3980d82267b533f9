"""The gate in the console: read what is asked, approve or reject after a page that confirms it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.module_loading import import_string
from django.utils.safestring import SafeString
from typing_extensions import override

from approvals_app.decisions import MAX_NOTES, DecisionBody, decide
from approvals_app.models import Assignment, Decision, Request
from approvals_app.policy import Choice, Person, RequestState
from orchestrator.core.errors import InvalidRequest, OrchestratorError
from orchestrator.models import Run

if TYPE_CHECKING:  # Django's admin classes are generic for the type checker only
    Inline = admin.TabularInline[Any, Request]
    RequestPages = admin.ModelAdmin[Request]
else:
    Inline, RequestPages = admin.TabularInline, admin.ModelAdmin

PERMISSION = "approvals_app.decide_request"


class ReadOnlyInline(Inline):
    """Rows that are shown and never edited."""

    extra = 0
    can_delete = False

    @override
    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never: rows come from decisions and documents."""
        return False

    @override
    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never: what was said stays said."""
        return False


class AssignmentInline(ReadOnlyInline):
    """Who may decide, and from when."""

    model = Assignment
    fields = ["who", "tier", "from_at"]
    verbose_name_plural = "Who may decide"


class DecisionInline(ReadOnlyInline):
    """What was said."""

    model = Decision
    fields = ["by", "choice", "notes", "data", "at"]
    verbose_name_plural = "Decisions"


class DecisionForm(forms.Form):
    """What the confirmation page asks for."""

    notes = forms.CharField(
        required=False,
        max_length=MAX_NOTES,
        widget=forms.Textarea(attrs={"rows": 4, "cols": 60}),
        help_text="Why. Kept with the decision and handed to later steps.",
    )
    answer = forms.JSONField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 6, "cols": 60}),
        help_text="What the form of this approval asks for, as JSON.",
    )


@admin.register(Request)
class RequestAdmin(RequestPages):
    """Approvals: state is read only; deciding is a POST of its own."""

    list_display = ["__str__", "state", "asked", "due_at", "closed_by"]
    list_filter = ["state", "workflow", "tenant"]
    search_fields = ["=run_id", "workflow", "key", "message"]
    date_hierarchy = "opened_at"
    inlines = [AssignmentInline, DecisionInline]
    actions = ["approve_selected", "reject_selected"]
    fieldsets = [
        (None, {"fields": ["state", "message", "due_at", "run", "workflow", "step"]}),
        ("Context", {"fields": ["run_input", "upstream_text", "starter"]}),
        ("Rules", {"fields": ["quorum", "four_eyes", "form_text"]}),
        ("Record", {"fields": ["outcome", "opened_at", "closed_at", "closed_by", "tenant"]}),
    ]
    change_form_template = "admin/approvals_app/request/change_form.html"

    @override
    def get_queryset(self, request: HttpRequest) -> QuerySet[Request]:
        """All of them, open ones first."""
        return super().get_queryset(request).prefetch_related("assignments")

    @override
    def has_add_permission(self, request: HttpRequest) -> bool:
        """Never: gates ask, not people."""
        return False

    @override
    def has_change_permission(self, request: HttpRequest, obj: Request | None = None) -> bool:
        """Never: an edit would bypass the rules of deciding."""
        return False

    @override
    def has_delete_permission(self, request: HttpRequest, obj: Request | None = None) -> bool:
        """Never: approvals are evidence."""
        return False

    def has_decide_permission(self, request: HttpRequest) -> bool:
        """Whether the user may approve and reject (named by the actions below)."""
        return bool(request.user.has_perm(PERMISSION))

    @admin.display(description="asked")
    def asked(self, obj: Request) -> str:
        """Whom the gate asks."""
        return ", ".join(each.who for each in obj.assignments.all())

    @admin.display(description="step")
    def step(self, obj: Request) -> str:
        """The gate's title and key."""
        return f"{obj.title} ({obj.key}{obj.scope})" if obj.title else f"{obj.key}{obj.scope}"

    @admin.display(description="run")
    def run(self, obj: Request) -> str | SafeString:
        """The run that waits, as a link."""
        try:
            address = reverse("admin:orchestrator_run_change", args=[obj.run_id])
        except NoReverseMatch:
            return str(obj.run_id)
        return format_html('<a href="{}">{}</a>', address, obj.run_id)

    @admin.display(description="input of the run")
    def run_input(self, obj: Request) -> str | SafeString:
        """What the run was started with."""
        found = Run.objects.filter(pk=obj.run_id).values_list("input", flat=True)
        return _json_block(found[0]) if found else "The run is no longer stored."

    @admin.display(description="what led here")
    def upstream_text(self, obj: Request) -> SafeString:
        """The gate's input."""
        return _json_block(obj.upstream)

    @admin.display(description="form")
    def form_text(self, obj: Request) -> str | SafeString:
        """The JSON Schema of ``data``."""
        return "none" if obj.form is None else _json_block(obj.form)

    @admin.action(description="Approve …", permissions=["decide"])
    def approve_selected(self, request: HttpRequest, queryset: QuerySet[Request]) -> HttpResponse:
        """Go to the page that confirms it."""
        del request
        return _to_confirmation(Choice.APPROVE, queryset)

    @admin.action(description="Reject …", permissions=["decide"])
    def reject_selected(self, request: HttpRequest, queryset: QuerySet[Request]) -> HttpResponse:
        """Go to the page that confirms it."""
        del request
        return _to_confirmation(Choice.REJECT, queryset)

    @override
    def get_urls(self) -> list[URLPattern]:
        """The confirmation page beside the usual ones."""
        view = self.admin_site.admin_view(self.decide_view)
        own = path("decide/<str:choice>/", view, name="approvals_app_request_decide")
        return [own, *super().get_urls()]

    @override
    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """The page of one approval, with its two buttons while it is open."""
        obj = self.get_object(request, object_id)
        is_open = obj is not None and obj.state == RequestState.OPEN
        may = is_open and self.has_decide_permission(request)
        context = {"may_decide": may, **(extra_context or {})}
        return super().change_view(request, object_id, form_url, extra_context=context)

    def decide_view(self, request: HttpRequest, choice: str) -> HttpResponse:
        """GET shows what would be decided; only POST decides."""
        if choice not in list(Choice) or not self.has_decide_permission(request):
            raise PermissionDenied
        chosen = self._chosen(request)
        form = DecisionForm(request.POST if request.method == "POST" else None)
        if request.method == "POST" and form.is_valid():
            self._decide_all(request, chosen, Choice(choice), form.cleaned_data)
            return HttpResponseRedirect(_after(chosen))
        context = {
            **self.admin_site.each_context(request),
            "title": _heading(choice, chosen),
            "opts": self.opts,
            "chosen": chosen,
            "choice": choice,
            "form": form,
            "asks_data": any(each.form is not None for each in chosen),
        }
        return TemplateResponse(request, "admin/approvals_app/request/decide.html", context)

    def _chosen(self, request: HttpRequest) -> list[Request]:
        query = request.POST if request.method == "POST" else request.GET
        ids = [found for text in query.getlist("id") if (found := _uuid(text))]
        return list(self.get_queryset(request).filter(pk__in=ids))

    def _decide_all(
        self, request: HttpRequest, chosen: list[Request], choice: Choice, said: dict[str, Any]
    ) -> None:
        body = DecisionBody(decision=choice, notes=said["notes"], data=said["answer"])
        for each in chosen:
            person = _person(request, each.tenant)
            try:
                result = decide(each.pk, body, tenant=each.tenant, person=person)
            except OrchestratorError as refusal:
                messages.error(request, f"{each}: {_explained(refusal)}")
                continue
            if result.applied:
                self.log_change(request, each, f"{choice}: {said['notes']}")
            messages.success(request, f"{each}: {_told(choice, concluded=result.concluded)}")


def _person(request: HttpRequest, tenant: str) -> Person:
    """The console's user in ``tenant``; a superuser may stand in for anybody.

    Roles come from the function that ``GATE_PERSON_ROLES`` in the settings names, groups are
    Django's.
    """
    user = request.user
    roles_of = import_string(settings.GATE_PERSON_ROLES)
    return Person(
        actor=f"user:{user.get_username()}",
        roles=frozenset(roles_of(user, tenant)),
        groups=frozenset(user.groups.values_list("name", flat=True)),
        stands_in=bool(user.is_superuser),
    )


def _heading(choice: str, chosen: list[Request]) -> str:
    if len(chosen) == 1:
        return f"{choice.capitalize()}: {chosen[0].title or chosen[0]}"
    return f"{choice.capitalize()} {len(chosen)} approvals"


def _to_confirmation(choice: Choice, queryset: QuerySet[Request]) -> HttpResponseRedirect:
    page = reverse("admin:approvals_app_request_decide", args=[choice.value])
    ids = "&".join(f"id={pk}" for pk in queryset.values_list("pk", flat=True))
    return HttpResponseRedirect(f"{page}?{ids}")


def _after(chosen: list[Request]) -> str:
    if len(chosen) == 1:
        return reverse("admin:approvals_app_request_change", args=[chosen[0].pk])
    return reverse("admin:approvals_app_request_changelist")


def _told(choice: Choice, *, concluded: bool) -> str:
    if not concluded:
        return "noted; more approvers are needed."
    return "approved; the run goes on." if choice is Choice.APPROVE else "rejected."


def _explained(refusal: OrchestratorError) -> str:
    if not isinstance(refusal, InvalidRequest):
        return str(refusal)
    faults = "; ".join(f"{each['pointer']}: {each['detail']}" for each in refusal.problems)
    return f"{refusal} {faults}"


def _json_block(value: Any) -> SafeString:
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return format_html('<pre class="approval-json">{}</pre>', text)


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
