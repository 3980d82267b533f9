"""Choosing the dead letters that are retried together: counted first, confirmed with a reason."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Count, Max, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from orchestrator import engine
from orchestrator.admin.bulk_retries import go_on_at_once
from orchestrator.admin.operators import actor_of, may_operate, roles_of
from orchestrator.admin.reasons import ReasonForm, token_of
from orchestrator.models import BulkRetry, DeadLetter

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin

    Pages = ModelAdmin[DeadLetter]
else:
    Pages = object

GROUPS_SHOWN = 20
MOST_CHOSEN = 1000
_REASONS = ("exhausted", "permanent", "quarantined", "compensation", "irreversible")
_BIGGEST = 2**63
_FIELDS = {"tenant": "tenant", "workflow": "workflow", "service": "service", "gave_up": "reason"}


class ChoiceForm(forms.Form):
    """Which dead letters: those picked one by one, else all open ones that fit; what is left empty
    does not narrow."""

    ids = forms.RegexField(r"^[0-9]+(,[0-9]+)*$", required=False, widget=forms.HiddenInput)
    tenant = forms.CharField(max_length=200, required=False)
    workflow = forms.CharField(max_length=200, required=False)
    service = forms.CharField(max_length=200, required=False)
    gave_up = forms.ChoiceField(
        required=False,
        label="Gave up as",
        choices=[("", "---------"), *((word, word) for word in _REASONS)],
    )

    def clean_ids(self) -> list[int]:
        """The picked ones as numbers."""
        text = self.cleaned_data["ids"]
        found = sorted({int(each[:20]) for each in text.split(",")}) if text else []
        if len(found) > MOST_CHOSEN or any(each >= _BIGGEST for each in found):
            raise forms.ValidationError(f"Pick at most {MOST_CHOSEN} of those that there are.")
        return found

    @property
    def picked(self) -> bool:
        """Whether they were picked one by one."""
        return bool(self.data.get("ids"))

    @property
    def chosen_by(self) -> dict[str, Any]:
        """The choice in words that are kept."""
        given = self.cleaned_data
        if given["ids"]:
            return {"picked": len(given["ids"])}
        return {column: given[name] for name, column in _FIELDS.items() if given[name]}

    def letters(self) -> QuerySet[DeadLetter]:
        """The open ones that fit."""
        given = self.cleaned_data
        found = engine.open_letters(DeadLetter.objects.all())
        if given["ids"]:
            return found.filter(pk__in=given["ids"])
        narrowed = {column: given[name] for name, column in _FIELDS.items() if given[name]}
        return found.filter(**narrowed)


class BulkChoice(Pages):
    """The page that counts what fits and asks for the reason; a part of the dead letters' pages."""

    def has_operate_permission(self, request: HttpRequest) -> bool:
        """Whether the user may retry."""
        return may_operate(request)

    @admin.action(description="Retry the chosen …", permissions=["operate"])
    def retry_chosen(
        self, request: HttpRequest, queryset: QuerySet[DeadLetter]
    ) -> HttpResponse | None:
        """To the page that asks; across pages it is the filter that chooses."""
        everything = retry_all_address(request.GET)
        if request.POST.get("select_across") == "1" and everything is not None:
            return HttpResponseRedirect(everything)
        chosen = engine.open_letters(queryset).order_by("pk")
        ids = [str(pk) for pk in chosen.values_list("pk", flat=True)[:MOST_CHOSEN]]
        if not ids:
            messages.error(request, "None of the chosen is open: nothing is left to be retried.")
            return None
        return HttpResponseRedirect(f"{_address()}?{urlencode({'ids': ','.join(ids)})}")

    def retry_view(self, request: HttpRequest) -> HttpResponse:
        """GET counts; POST counts again, or begins. Nothing happens by a link."""
        if not may_operate(request):
            raise PermissionDenied
        given = request.POST if request.method == "POST" else request.GET
        choice = ChoiceForm(given, label_suffix="")
        sent = request.method == "POST" and "act" in request.POST
        text = {"reason": request.POST.get("reason", "")}
        reason = ReasonForm(request.POST if sent else None, initial=text, label_suffix="")
        changed = False
        if sent and choice.is_valid() and reason.is_valid():
            changed = request.POST.get("seen") != _mark(choice)
            if not changed:
                return self._begin(request, choice, reason.cleaned_data["reason"])
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": "Retry dead letters …",
            "choice": choice,
            "changed": changed,
            "form": reason,
            "token": token_of(request),
            "most": engine.MAX_BULK,
            **(_fits(choice) if choice.is_valid() else {}),
        }
        page = "admin/orchestrator/deadletter/retry.html"
        return TemplateResponse(request, page, context, status=409 if changed else 200)

    def _begin(self, request: HttpRequest, choice: ChoiceForm, reason: str) -> HttpResponse:
        """Keep the choice, as it was counted: what came since is not in it."""
        bulk_id = UUID(token_of(request))
        upto = request.POST.get("upto", "")
        newest = int(upto) if upto.isascii() and upto.isdigit() and len(upto) < 19 else 0
        begun = engine.start_bulk(
            bulk_id,
            choice.letters().filter(pk__lte=newest),
            chosen_by=choice.chosen_by,
            reason=reason,
            actor=actor_of(request),
            role=roles_of(request),
        )
        if begun:
            bulk = BulkRetry.objects.get(pk=bulk_id)
            self.log_change(request, bulk, f"Retry {bulk.total} dead letters: {reason}")  # type: ignore[arg-type]  # any row can be logged
            go_on_at_once(request, bulk)
        page = reverse("admin:orchestrator_bulkretry_change", args=[bulk_id])
        return HttpResponseRedirect(page)


def retry_all_address(query: Mapping[str, str]) -> str | None:
    """The page for all open letters that fit the list's filter; None: the filter asks for others,
    or for what that page cannot ask."""
    if query.get("standing") not in (None, "open"):
        return None
    names = {column: name for name, column in _FIELDS.items()}
    given = {names[key]: value for key, value in query.items() if key in names}
    return f"{_address()}?{urlencode(given)}"


def _address() -> str:
    return reverse("admin:orchestrator_deadletter_retry")


def _mark(choice: ChoiceForm) -> str:
    """Of what is chosen: nobody confirms another choice than was counted."""
    given = [choice.cleaned_data["ids"], *(choice.cleaned_data[name] for name in _FIELDS)]
    return hashlib.sha256(json.dumps(given).encode()).hexdigest()


def _fits(choice: ChoiceForm) -> dict[str, Any]:
    found = choice.letters().order_by()
    whole = found.aggregate(count=Count("pk"), newest=Max("pk"))
    groups = found.values("tenant", "workflow", "service", "reason").annotate(count=Count("pk"))
    return {
        "counted": True,
        "count": whole["count"],
        "upto": whole["newest"] or 0,
        "seen": _mark(choice),
        "groups": list(groups.order_by("-count", "workflow")[:GROUPS_SHOWN]),
    }
