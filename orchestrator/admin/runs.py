"""Runs in the console: find one, see why it stands where it stands, steer it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from orchestrator import engine
from orchestrator.admin.control import VERBS, RunControl
from orchestrator.admin.filters import StateFilter, TenantFilter, WorkflowFilter
from orchestrator.admin.readonly import ReadOnlyPages, state_badge
from orchestrator.admin.repair_acts import Offers
from orchestrator.admin.repair_pages import RunRepair
from orchestrator.admin.run_page import event_row, run_context, step_context
from orchestrator.core.durations import format_money
from orchestrator.models import Blueprint, Event, Run, Step

EVENTS_ON_A_PAGE = 500
_UNREAD = ("compact", "input", "output", "context", "trigger", "warnings")


@admin.register(Run)
class RunAdmin(RunControl, RunRepair, ReadOnlyPages[Run]):
    """All runs, newest first; a page of its own for each."""

    list_display = ("what", "badge", "started", "took", "cost", "tenant")
    list_display_links = ("what",)
    list_filter = (StateFilter, WorkflowFilter, TenantFilter)
    search_fields = ("id",)
    search_help_text = "The whole id of a run, or a correlation id."
    ordering = ("-id",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Run]:
        """Runs without their data; one page reads the whole row."""
        runs = super().get_queryset(request)
        match = request.resolver_match
        listing = match is not None and match.url_name == "orchestrator_run_changelist"
        return runs.defer(*_UNREAD) if listing else runs

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Run], search_term: str
    ) -> tuple[QuerySet[Run], bool]:
        """Exact matches only: both are served by an index."""
        del request
        term = search_term.strip().replace("\x00", "")
        if not term:
            return queryset, False
        if (run_id := _uuid(term)) is not None:
            return queryset.filter(pk=run_id), False
        tenants = list(Blueprint.objects.values_list("tenant", flat=True).distinct())
        return queryset.filter(tenant__in=tenants, correlation_id=term), False

    # -- columns -------------------------------------------------------------------------------

    @admin.display(description="state")
    def badge(self, run: Run) -> SafeString:
        """The state in its colour, and what a waiting run waits for."""
        waits = f"waiting: {run.waiting_for}" if run.waiting_for else ""
        return state_badge(run.state, waits)

    @admin.display(description="run")
    def what(self, run: Run) -> SafeString:
        """Workflow and version, and the id below."""
        return format_html(
            '{} @{}<div class="aside when">{}</div>', run.workflow, run.workflow_version, run.id
        )

    @admin.display(description="started")
    def started(self, run: Run) -> SafeString:
        """When it was stored, to the second, and by whom."""
        return format_html(
            '<span class="when">{}</span><div class="aside">by {}</div>',
            f"{run.created_at:%Y-%m-%d %H:%M:%S}",
            run.started_by,
        )

    @admin.display(description="took")
    def took(self, run: Run) -> str:
        """How long it took; empty while it is under way."""
        return engine.length(run.finished_at - run.created_at) if run.finished_at else ""

    @admin.display(description="USD")
    def cost(self, run: Run) -> str:
        """What is known of the cost."""
        unknown = "+ ?" if run.cost_unknown else ""
        return format_money(run.cost_microusd) + unknown if run.cost_microusd or unknown else ""

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The list, under its own name: there is nothing to select here."""
        return super().changelist_view(request, {"title": "Runs", **(extra_context or {})})

    # -- pages ---------------------------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        """The pages beside Django's own."""
        wrap = self.admin_site.admin_view
        own = [
            path("<uuid:run_id>/events/", wrap(self.events_view), name="orchestrator_run_events"),
            path(
                "<uuid:run_id>/steps/<uuid:step_id>/",
                wrap(self.step_view),
                name="orchestrator_run_step",
            ),
            path(
                "<uuid:run_id>/repair/<slug:word>/",
                wrap(self.repair_view),
                name="orchestrator_run_repair",
            ),
            *(
                path(
                    f"<uuid:run_id>/{verb}/",
                    wrap(self.control_view),
                    {"verb": verb},
                    name=f"orchestrator_run_{verb}",
                )
                for verb in VERBS
            ),
        ]
        return [*own, *super().get_urls()]

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """One run: why, steps, history, data."""
        del form_url
        run_id = _uuid(object_id)
        run = self._run(request, run_id) if run_id is not None else None
        if run is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[attr-defined,no-any-return]
        may = self.has_operate_permission(request)
        offers = Offers(run) if may else None
        verbs = [verb for verb in VERBS.values() if verb.fits(run)]
        context = {
            **run_context(run, offers),
            "verbs": [
                (verb, reverse(f"admin:orchestrator_run_{verb.name}", args=[run.id]))
                for verb in (verbs if may else ())
            ],
            "repairs": offers.of_run() if offers is not None else (),
            **(extra_context or {}),
        }
        return self._page(request, "detail", context)

    def events_view(self, request: HttpRequest, run_id: UUID) -> HttpResponse:
        """The whole history, in order, page by page."""
        run = self._found(request, run_id)
        text = request.GET.get("after", "0")
        after = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0
        found = Event.objects.filter(run_id=run.id, seq__gt=after).order_by("seq")
        events = list(found[: EVENTS_ON_A_PAGE + 1])
        more = len(events) > EVENTS_ON_A_PAGE
        events = events[:EVENTS_ON_A_PAGE]
        context = {
            "title": f"History of {run.workflow} {run.id}",
            "run": run,
            "events": [event_row(event) for event in events],
            "next": events[-1].seq if more else None,
        }
        return self._page(request, "events", context)

    def step_view(self, request: HttpRequest, run_id: UUID, step_id: UUID) -> HttpResponse:
        """One step: what went in, what came out, what failed on the way."""
        run = self._found(request, run_id)
        step = Step.objects.filter(run=run, pk=step_id).first()
        if step is None:
            raise Http404
        offers = Offers(run) if self.has_operate_permission(request) else None
        return self._page(request, "step", step_context(run, step, offers))

    def _page(self, request: HttpRequest, name: str, context: dict[str, Any]) -> HttpResponse:
        whole = {**self.admin_site.each_context(request), "opts": self.opts, **context}
        return TemplateResponse(request, f"admin/orchestrator/run/{name}.html", whole)

    def _found(self, request: HttpRequest, run_id: UUID) -> Run:
        run = self._run(request, run_id)
        if run is None:
            raise Http404
        return run

    def _run(self, request: HttpRequest, run_id: UUID) -> Run | None:
        if not self.has_view_permission(request):
            raise PermissionDenied
        return Run.objects.filter(pk=run_id).select_related("blueprint").first()


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
