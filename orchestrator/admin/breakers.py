"""Services, holds and quotas in the console: what is shut, why, since when, and who waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from orchestrator import engine
from orchestrator.admin.operators import actor_of, may_operate
from orchestrator.admin.readonly import ReadOnlyPages
from orchestrator.core.errors import OrchestratorError
from orchestrator.core.gates import GLOBAL, SCOPES
from orchestrator.models import Breaker, Hold


@dataclass(frozen=True, slots=True)
class Verb:
    """One of the two acts. ``done`` is what the message says afterwards."""

    name: str
    label: str
    done: str
    effect: str


VERBS = {
    "hold": Verb(
        "hold",
        "Hold",
        "held",
        "What runs finishes. What would start waits, burns no attempt, and shows your reason.",
    ),
    "release": Verb(
        "release",
        "Release",
        "released",
        "What waits starts in turns between tenants and runs, the oldest first.",
    ),
}


class HoldForm(forms.Form):
    """What the confirmation page asks for."""

    scope = forms.ChoiceField(choices=[(scope, scope) for scope in SCOPES])
    name = forms.CharField(
        max_length=255, required=False, help_text="Of the service, model, tenant or queue."
    )
    reason = forms.CharField(
        max_length=2000,
        widget=forms.Textarea(attrs={"rows": 3, "cols": 60, "autofocus": True}),
        help_text="Why. It is kept with your name, and shown with what waits.",
    )


@admin.register(Breaker)
class ServiceAdmin(ReadOnlyPages[Breaker]):
    """Everything that is held, limited or has a breaker, on one page."""

    def get_urls(self) -> list[URLPattern]:
        """The two acts, before Django's own pages."""
        wrap = self.admin_site.admin_view
        own = [
            path(
                f"{verb}/", wrap(self.act_view), {"verb": verb}, name=f"orchestrator_breaker_{verb}"
            )
            for verb in VERBS
        ]
        return [*own, *super().get_urls()]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The list: not of rows, but of all that may keep work from starting."""
        del extra_context
        if not self.has_view_permission(request):
            raise PermissionDenied
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": "Services, holds and quotas",
            "services": engine.services(),
            "may_operate": may_operate(request),
        }
        return TemplateResponse(request, "admin/orchestrator/breaker/services.html", context)

    def act_view(self, request: HttpRequest, verb: str) -> HttpResponse:
        """GET asks, POST does; nothing happens by a link."""
        chosen = VERBS[verb]
        if not may_operate(request):
            raise PermissionDenied
        scope = request.GET.get("scope", "service")
        if scope not in SCOPES:
            raise Http404
        posted = request.POST if request.method == "POST" else None
        given = {"scope": scope, "name": request.GET.get("name", "")}
        form = HoldForm(posted, initial=given)
        if form.is_valid() and self._perform(request, chosen, form.cleaned_data):
            return HttpResponseRedirect(reverse("admin:orchestrator_breaker_changelist"))
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": f"{chosen.label} {scope} {given['name']}".strip() + "?",
            "verb": chosen,
            "form": form,
        }
        return TemplateResponse(request, "admin/orchestrator/breaker/act.html", context)

    def _perform(self, request: HttpRequest, verb: Verb, given: dict[str, str]) -> bool:
        act = engine.hold if verb.name == "hold" else engine.release_hold
        scope, name = given["scope"], given["name"]
        try:
            act(scope, name, reason=given["reason"], actor=actor_of(request))
        except OrchestratorError as refusal:
            messages.error(request, f"Not {verb.done}: {refusal}.")
            return False
        what = "Everything" if scope == GLOBAL else f"{scope.capitalize()} {name}"
        messages.success(request, f"{what} is {verb.done}.")
        return True


@admin.register(Hold)
class HoldAdmin(ReadOnlyPages[Hold]):
    """Who held what and why, and who let it go: the audit."""

    list_display = (
        *("held_at", "scope", "name", "actor", "reason", "until"),
        *("released_at", "released_by", "release_reason"),
    )
    list_filter = ("scope",)
    ordering = ("-id",)
    fields = list_display
    readonly_fields = list_display
