"""What a run would come to, before there is one."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from workflows_app import simulating
from workflows_app.api.answers import Answer, ErrorAnswer
from workflows_app.api.base import caller, describe
from workflows_app.principal import Scope
from workflows_app.simulating import SimulationBody


class RangeAnswer(Answer):
    """An expectation from earlier runs."""

    p50: Annotated[float, Field(description="What half of them stayed below.")]
    p95: Annotated[float, Field(description="What 95 of 100 did, each step at that figure.")]
    complete: Annotated[bool, Field(description="false: both are at least that.")]
    unknown: Annotated[list[str], Field(description="Steps of which no earlier run tells.")]


class PaperStepAnswer(Answer):
    """A step, or an item, of the path."""

    name: str
    type: str
    title: str
    state: str
    source: Annotated[
        str,
        Field(
            description="Where its answer comes from: given, computed, recorded, receipt, child,"
            " assumed; empty: it was not reached."
        ),
    ]
    attempts: int
    starts_s: float | None
    ends_s: float | None
    input: Any
    output: Any
    error: ErrorAnswer | None
    why: str
    child: SimulationAnswer | None


class PaperApprovalAnswer(Answer):
    """What people would be asked."""

    step: str
    asked: Annotated[dict[str, Any], Field(description="Who, what, by when.")]
    decision: str
    source: str


class PaperEffectAnswer(Answer):
    """An effect that would be made."""

    step: str
    key: str
    tool: str
    course: Annotated[
        str,
        Field(description="call; or what stands under the key: found, clash, undone, busy, doubt."),
    ]
    held_by: str
    money: bool
    irreversible: bool
    undoes: str | None


class AssumptionAnswer(Answer):
    """What was neither given nor known."""

    step: str
    words: str


class MomentAnswer(Answer):
    """A line of the history on paper."""

    at_s: float
    type: str
    step: str | None


class SimulationAnswer(Answer):
    """What a run would come to."""

    workflow: str
    version: Annotated[int | None, Field(description="null: a document that is not published.")]
    state: str
    waiting_for: str | None
    outcome: str | None
    compensation: str | None
    output: Any
    error: ErrorAnswer | None
    warnings: list[dict[str, Any]]
    path: list[PaperStepAnswer]
    approvals: list[PaperApprovalAnswer]
    effects: list[PaperEffectAnswer]
    assumptions: list[AssumptionAnswer]
    time_s: RangeAnswer
    waiting_s: Annotated[RangeAnswer, Field(description="Of it, the time spent waiting.")]
    cost_usd: RangeAnswer
    runs: Annotated[int, Field(description="From how many earlier runs the figures come.")]
    history: list[MomentAnswer]


PaperStepAnswer.model_rebuild()


class SimulateView(APIView):
    """A run on paper."""

    required_scope = Scope.RUN_READ
    problem_statuses: ClassVar = {"POST": (404,)}

    @describe(
        "simulateWorkflow",
        "Simulate a workflow",
        body=SimulationBody,
        answers={200: SimulationAnswer},
        tag="Definitions",
    )
    def post(self, request: Request) -> Response:
        """The path that a run would take, what people would be asked, which effects it would make
        under which keys, and how long it would take and cost by earlier runs.

        Decided by the same rules as live; nothing is stored, nobody is called. Needs `run:read`,
        for it tells what earlier runs took and answered.
        """
        body = SimulationBody.read(request.data)
        return Response(simulating.simulate(caller(request), body).as_json())
