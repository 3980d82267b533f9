"""Pause, resume and cancel from the console: confirmed, with a reason, by the engine's face."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from orchestrator import engine
from orchestrator.admin.operators import actor_of, may_operate
from orchestrator.admin.reasons import ReasonForm
from orchestrator.core.errors import OrchestratorError
from orchestrator.core.states import RUN_TERMINAL, RunState
from orchestrator.models import Run

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin

    Pages = ModelAdmin[Run]
else:
    Pages = object


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """One way to steer a run. ``done`` is what the message says afterwards."""

    name: str
    label: str
    done: str
    effect: str
    perform: Callable[..., None]
    states: frozenset[RunState]

    def fits(self, run: Run) -> bool:
        """Whether the run's present state allows it; the engine has the last word."""
        return RunState(run.state) in self.states


_OPEN = frozenset(RunState) - RUN_TERMINAL

VERBS = {
    verb.name: verb
    for verb in (
        Verb(
            name="pause",
            label="Pause",
            done="paused",
            effect="Steps at work finish; nothing new starts until somebody resumes the run.",
            perform=engine.pause_run,
            states=_OPEN - {RunState.PAUSED, RunState.COMPENSATING},
        ),
        Verb(
            name="resume",
            label="Resume",
            done="resumed",
            effect="The run goes on; a step whose failure paused it is tried again.",
            perform=engine.resume_run,
            states=frozenset({RunState.PAUSED}),
        ),
        Verb(
            name="cancel",
            label="Cancel",
            done="cancelled",
            effect=(
                "The run ends as cancelled, and its sub-workflows with it. Steps at work finish,"
                " nothing new starts. This cannot be taken back."
            ),
            perform=engine.cancel_run,
            states=_OPEN,
        ),
    )
}


class RunControl(Pages):
    """The confirmation page of each verb; a part of the run's pages."""

    def has_operate_permission(self, request: HttpRequest) -> bool:
        """Whether the user may steer runs. Nobody may edit them."""
        return may_operate(request)

    def control_view(self, request: HttpRequest, run_id: UUID, verb: str) -> HttpResponse:
        """GET asks, POST does; nothing happens by a link."""
        chosen = VERBS.get(verb)
        run = Run.objects.filter(pk=run_id).first()
        if chosen is None or run is None:
            raise Http404
        if not self.has_operate_permission(request):
            raise PermissionDenied
        if not chosen.fits(run):
            messages.error(request, f"The run is {run.state}: it cannot be {chosen.done}.")
            return _to_run(run)
        form = ReasonForm(request.POST if request.method == "POST" else None)
        if request.method == "POST" and form.is_valid():
            self._perform(request, run, chosen, form.cleaned_data["reason"])
            return _to_run(run)
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": f"{chosen.label} {run.workflow} {run.id}?",
            "run": run,
            "verb": chosen,
            "picture": engine.picture(run),
            "form": form,
        }
        return TemplateResponse(request, "admin/orchestrator/run/control.html", context)

    def _perform(self, request: HttpRequest, run: Run, verb: Verb, reason: str) -> None:
        try:
            verb.perform(run.id, actor=actor_of(request), reason=reason)
        except OrchestratorError as refusal:
            messages.error(request, f"Not {verb.done}: {refusal}.")
            return
        self.log_change(request, run, f"{verb.label}: {reason}")
        messages.success(request, f"{run.workflow} {run.id} is {verb.done}.")


def _to_run(run: Run) -> HttpResponseRedirect:
    return HttpResponseRedirect(reverse("admin:orchestrator_run_change", args=[run.id]))
