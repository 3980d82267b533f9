"""Repair from the console: what it would do is shown first, then it is done once, with a reason."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from orchestrator import engine
from orchestrator.admin.operators import actor_of, may_operate, roles_of
from orchestrator.admin.readonly import state_badge
from orchestrator.admin.reasons import ReasonForm, token_of
from orchestrator.admin.repair_acts import ACTS, Act, asked_for, preview_lines, sentence
from orchestrator.admin.repair_forms import FORMS
from orchestrator.core.durations import format_money
from orchestrator.core.errors import NotFound, OrchestratorError
from orchestrator.engine import RepairReport
from orchestrator.models import Repair, Run

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin

    Pages = ModelAdmin[Run]
else:
    Pages = object

_USED = (
    "This page was used already, and what it asked for was done. Look at the run as it stands now,"
    " and send it again if that is still what you want"
)


@dataclass(slots=True, kw_only=True)
class _Asked:
    """One visit of the page: what is asked, what it would do, and what forbids it."""

    act: Act
    run: Run
    target: forms.Form
    reason: ReasonForm
    token: str
    preview: RepairReport | None = None
    refusals: list[str] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether enough is known to preview it."""
        return self.target.is_bound and self.target.is_valid()

    @property
    def wish(self) -> dict[str, Any]:
        """The order's own words."""
        return asked_for(self.act, self.target.cleaned_data)

    @property
    def mark(self) -> str:
        """Of what is asked: nobody confirms another thing than was shown."""
        text = json.dumps(self.wish, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def name(self) -> str:
        """What it is about, in a title."""
        if not self.is_complete:
            known = self.target.data or self.target.initial
            return str(known.get("effect_key") or known.get("step") or "")
        given = self.target.cleaned_data
        line = f"line {given['from_sequence']}" if given.get("from_sequence") else ""
        return given.get("effect_key") or f"{given.get('step')}{given.get('scope') or ''}" or line


class RunRepair(Pages):
    """The page of each repair; a part of the run's pages."""

    def repair_view(self, request: HttpRequest, run_id: UUID, word: str) -> HttpResponse:
        """GET shows what would happen; POST does it, or looks again. Nothing happens by a link."""
        act = ACTS.get(word)
        run = Run.objects.filter(pk=run_id).first()
        if act is None or run is None:
            raise Http404
        if not may_operate(request):
            raise PermissionDenied
        asked = _read(request, act, run)
        if request.method == "POST" and "act" in request.POST and self._do(request, asked):
            return HttpResponseRedirect(reverse("admin:orchestrator_run_change", args=[run.id]))
        _foresee(asked)
        return self._shown(request, asked)

    def _do(self, request: HttpRequest, asked: _Asked) -> bool:
        """Whether it was done, now or by the same page before."""
        ready = asked.is_complete and asked.reason.is_valid()
        if not ready:
            return False
        if request.POST.get("seen") != asked.mark:
            asked.refusals.append(
                "Nothing was done yet: below is what your choice would do. Confirm it if that is"
                " what you want."
            )
            return False
        try:
            report = engine.repair_run(
                asked.run.id,
                **asked.wish,
                reason=asked.reason.cleaned_data["reason"],
                actor=actor_of(request),
                role=roles_of(request),
                token=asked.token,
                expected_version=_number(request.POST.get("version", "")),
            )
        except OrchestratorError as refusal:
            _refuse(asked, refusal)
            return False
        self._tell(request, asked, report)
        return True

    def _tell(self, request: HttpRequest, asked: _Asked, report: RepairReport) -> None:
        act = asked.act
        if report.replayed:
            messages.info(request, "That had been done already: the page was sent twice.")
            return
        what = f"{act.label} {asked.name}: {asked.reason.cleaned_data['reason']}"
        self.log_change(request, asked.run, what)
        messages.success(request, f"{act.done.format(asked.name)}. The run is {report.state}.")

    def _shown(self, request: HttpRequest, asked: _Asked) -> HttpResponse:
        asked.run.refresh_from_db()
        if asked.preview is None:
            _focus_target(asked)
        run, act, preview = asked.run, asked.act, asked.preview
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": f"{act.label} {asked.name} …" if asked.name else f"{act.label} …",
            "here": f"{act.label} {asked.name}".strip(),
            "run": run,
            "act": act,
            "badge": state_badge(run.state),
            "why": engine.picture(run).why,
            "last": Repair.objects.filter(run=run).order_by("-pk").first(),
            "refusals": asked.refusals,
            "target": asked.target,
            "form": asked.reason,
            "token": asked.token,
            **(_preview(asked, preview) if preview is not None else {}),
        }
        status = 409 if asked.refusals else 200
        return TemplateResponse(
            request, "admin/orchestrator/run/repair.html", context, status=status
        )


def _focus_target(asked: _Asked) -> None:
    """The keyboard begins where something is to be chosen, not at the reason."""
    for first in asked.target.visible_fields()[:1]:
        first.field.widget.attrs["autofocus"] = True
        asked.reason.fields["reason"].widget.attrs.pop("autofocus", None)


def _read(request: HttpRequest, act: Act, run: Run) -> _Asked:
    posted = request.method == "POST"
    given = request.POST if posted else request.GET
    known = posted or any(given.get(name) for name in act.needs)
    target = FORMS[act.action](
        given if known else None, run=run, initial=given.dict(), label_suffix=""
    )
    if not posted and not known and "step" in act.needs and "from_sequence" not in act.needs:
        raise Http404
    sent = posted and "act" in request.POST
    text = {"reason": request.POST.get("reason", "")}
    reason = ReasonForm(request.POST if sent else None, initial=text, label_suffix="")
    return _Asked(act=act, run=run, target=target, reason=reason, token=token_of(request))


def _foresee(asked: _Asked) -> None:
    """What it would do now; a refusal is said as such."""
    if not asked.is_complete:
        return
    try:
        asked.preview = engine.repair_run(
            asked.run.id, **asked.wish, reason="preview", actor="", token="", preview=True
        )
    except NotFound as missing:
        asked.refusals.append(f"{sentence(missing)} Go back to the run and choose again.")
    except OrchestratorError as refusal:
        said = _said(refusal)
        if not any(said in earlier for earlier in asked.refusals):
            asked.refusals.append(f"It is not possible now. {said}")


def _refuse(asked: _Asked, refusal: OrchestratorError) -> None:
    if refusal.code == "idempotency_key_reused":
        asked.token = str(uuid4())
        asked.refusals.append(f"{_USED}.")
    else:
        asked.refusals.append(f"Nothing was done. {_said(refusal)}")


def _said(refusal: OrchestratorError) -> str:
    """In the words of the page, where the engine speaks of fields of the API."""
    if refusal.code != "undo_first":
        return sentence(refusal)
    what = str(refusal).partition(":")[0]
    return f"{sentence(Exception(what))} Tick below to undo all of it in order, or undo that first."


def _preview(asked: _Asked, report: RepairReport) -> dict[str, Any]:
    cost = report.cost_microusd
    return {
        "preview": report,
        "seen": asked.mark,
        "after": state_badge(report.state),
        "lines": preview_lines(report),
        "cost": None if cost is None else format_money(cost),
    }


def _number(text: str) -> int:
    """The version that the operator saw; 0, which no run has, when it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0
