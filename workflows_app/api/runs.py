"""Starting and looking at runs."""

from __future__ import annotations

from typing import Any, ClassVar

from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from orchestrator import engine
from orchestrator.core.states import RunState
from workflows_app import queries, triggering
from workflows_app.api import shapes
from workflows_app.api.answers import EventPage, RunAnswer, RunPage, StartAnswer, StepPage
from workflows_app.api.base import CURSOR, LIMIT, caller, describe, header, page, query
from workflows_app.principal import Scope
from workflows_app.queries import RunFilter
from workflows_app.requests import StartBody

KEY = header(
    "Idempotency-Key",
    "1 to 255 printable characters. The same key and body again answer the same run.",
    required=True,
)


class RunsView(APIView):
    """The runs of a tenant."""

    required_scope = Scope.RUN_READ

    @describe(
        "listRuns",
        "List runs, newest first",
        answers={200: RunPage},
        parameters=[
            query("state", "May be repeated.", many=True, enum=[str(s) for s in RunState]),
            query("workflow", "Name of a workflow."),
            query("correlation_id", "As given at the start."),
            query("started_after", "ISO 8601 instant."),
            CURSOR,
            LIMIT,
        ],
    )
    def get(self, request: Request) -> Response:
        """Runs that fit all filters; `next` leads to older ones."""
        wanted = RunFilter(
            states=request.query_params.getlist("state"),
            workflow=request.query_params.get("workflow", ""),
            correlation_id=request.query_params.get("correlation_id", ""),
            started_after=request.query_params.get("started_after", ""),
        )
        found = queries.runs(caller(request).tenant, wanted)
        return page(self, request, found, lambda rows: [shapes.run_line(run) for run in rows])


class WorkflowView(APIView):
    """`POST` starts a run of the workflow that the address names; `GET` shows the run of the id."""

    required_scope: ClassVar = {"GET": Scope.RUN_READ, "POST": Scope.RUN_START}
    problem_statuses: ClassVar = {"POST": (409,)}

    @describe("showRun", "Show a run", answers={200: RunAnswer})
    def get(self, request: Request, id: str) -> Response:  # noqa: A002 - the word in the address
        """A run by its instance id, with steps, progress and why it stands where it stands."""
        run = queries.find_run(caller(request).tenant, id)
        return Response(shapes.run_answer(engine.picture(run)))

    @describe(
        "startRun",
        "Start a run",
        body=StartBody,
        answers={200: StartAnswer, 201: StartAnswer},
        parameters=[KEY],
    )
    def post(self, request: Request, id: str) -> Response:  # noqa: A002
        """Start the workflow of that name, once for each `Idempotency-Key`.

        201 for a new run; 200 with `Idempotency-Replayed: true` when the key has started it
        before; 409 with `Retry-After` while the key is in flight; 422 when it comes with another
        body. Refused calls use up no key.
        """
        started = triggering.start(
            caller(request),
            id,
            request.data,
            key=triggering.read_key(request.headers.get("Idempotency-Key")),
            traceparent=triggering.read_traceparent(request.headers.get("traceparent")),
        )
        if started.replayed:
            return Response(started.answer, headers={"Idempotency-Replayed": "true"})
        location = {"Location": started.answer["status_url"]}
        return Response(started.answer, status=201, headers=location)


class HistoryView(APIView):
    """The history of a run: append-only, gapless."""

    required_scope = Scope.RUN_READ
    page_by = "seq"
    page_after = "after"

    @describe(
        "readHistory",
        "Read the history of a run",
        answers={200: EventPage},
        parameters=[query("after", "Sequence to go on after.", type=int), LIMIT],
    )
    def get(self, request: Request, id: str) -> Response:  # noqa: A002
        """Every transition, in order, from sequence 1."""
        run_id = queries.find_run_id(caller(request).tenant, id)
        return page(self, request, queries.history(run_id), _events)


def _events(rows: list[Any]) -> list[Any]:
    return [shapes.event_answer(event) for event in rows]


class ItemsView(APIView):
    """The items of one for_each of a run."""

    required_scope = Scope.RUN_READ
    page_by = "index"

    @describe(
        "listItems",
        "List the items of a for_each",
        answers={200: StepPage},
        parameters=[
            query("parent", "Key of the step with `for_each`.", required=True),
            CURSOR,
            LIMIT,
        ],
    )
    def get(self, request: Request, id: str) -> Response:  # noqa: A002
        """Items that have begun, in order; those not yet released are not listed."""
        run = queries.find_run(caller(request).tenant, id)
        parent = queries.loop_key(run, request.query_params.get("parent", ""))
        items = engine.step_items(run, parent)
        return page(
            self,
            request,
            items,
            lambda rows: [shapes.step_answer(item) for item in engine.item_pictures(run, rows)],
        )
