"""Aliases of models in the console: where each leads, who changed it, and changing it."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from orchestrator import engine
from orchestrator.admin.operators import actor_of, may_operate
from orchestrator.admin.readonly import ReadOnlyPages
from orchestrator.core.errors import InvalidRequest
from orchestrator.models import ModelAlias

CHANGES_SHOWN = 50
LIST = "admin:orchestrator_modelalias_changelist"


class AliasForm(forms.Form):
    """Where an alias leads from now on."""

    name = forms.CharField(max_length=63, help_text="As documents write it: fast, deep, …")
    targets = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 4, "cols": 60}),
        help_text="One provider:model a line, in the order in which they are asked. Empty: as the"
        " settings say.",
    )
    reason = forms.CharField(
        max_length=2000,
        widget=forms.Textarea(attrs={"rows": 3, "cols": 60}),
        help_text="Why. It is kept with your name.",
    )


@admin.register(ModelAlias)
class ModelAliasAdmin(ReadOnlyPages[ModelAlias]):
    """Every alias with its models in order of fail-over, and the record of changes."""

    def get_urls(self) -> list[URLPattern]:
        """The one act, before Django's own pages."""
        own = path(
            "lead/",
            self.admin_site.admin_view(self.lead_view),
            name="orchestrator_modelalias_lead",
        )
        return [own, *super().get_urls()]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Not of rows, but of aliases, those of the settings too."""
        del extra_context
        if not self.has_view_permission(request):
            raise PermissionDenied
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": "Model aliases",
            "aliases": engine.model_aliases(),
            "changes": ModelAlias.objects.all()[:CHANGES_SHOWN],
            "may_operate": may_operate(request),
        }
        return TemplateResponse(request, "admin/orchestrator/modelalias/list.html", context)

    def lead_view(self, request: HttpRequest) -> HttpResponse:
        """GET asks, POST does; nothing happens by a link."""
        if not may_operate(request):
            raise PermissionDenied
        posted = request.POST if request.method == "POST" else None
        form = AliasForm(posted, initial=_present(request.GET.get("name", "")))
        if form.is_valid() and self._lead(request, form):
            return HttpResponseRedirect(reverse(LIST))
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": "Let an alias lead elsewhere",
            "form": form,
        }
        return TemplateResponse(request, "admin/orchestrator/modelalias/lead.html", context)

    def _lead(self, request: HttpRequest, form: AliasForm) -> bool:
        given = form.cleaned_data
        targets = [line.strip() for line in given["targets"].splitlines() if line.strip()]
        try:
            engine.set_model_alias(
                given["name"], targets, reason=given["reason"], actor=actor_of(request)
            )
        except InvalidRequest as refusal:
            for problem in refusal.problems:
                form.add_error(problem["pointer"].removeprefix("/"), problem["detail"])
            return False
        leads = " then ".join(targets) or "what the settings say"
        messages.success(request, f"Alias {given['name']} leads to {leads}.")
        return True


def _present(name: str) -> dict[str, str]:
    """The form as the alias is now."""
    found = [each for each in engine.model_aliases() if each.name == name]
    targets = "\n".join(found[0].targets) if found else ""
    return {"name": name, "targets": targets}
