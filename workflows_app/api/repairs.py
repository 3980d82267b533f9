"""Repairing a run."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from orchestrator.engine import RepairReport
from workflows_app import queries, repairing
from workflows_app.api import shapes
from workflows_app.api.answers import Answer, Usd
from workflows_app.api.base import caller, describe, header
from workflows_app.principal import Scope
from workflows_app.repairing import RepairBody
from workflows_app.triggering import read_key

KEY = header("Idempotency-Key", "Required unless `preview`. The same key does it once.")


class EffectsAnswer(Answer):
    """Keys of the effects of the steps that run again, by what happens to them."""

    found: Annotated[list[str], Field(description="The receipt is there: nobody is called.")]
    called: Annotated[list[str], Field(description="Known not to have happened.")]
    looked_up: Annotated[list[str], Field(description="In doubt: looked up, or asked about.")]
    undone: Annotated[list[str], Field(description="They happened, and are undone.")]


class RepairAnswer(Answer):
    """What a repair did, or with `preview` would do."""

    action: str
    step: str | None
    scope: str
    preview: bool
    state: Annotated[str, Field(description="Where the run stands with it.")]
    state_version: int
    reruns: Annotated[list[str], Field(description="Steps that had begun, and run again.")]
    starts: Annotated[list[str], Field(description="Those that are ready at once.")]
    undoes: Annotated[list[str], Field(description="Finished steps that are undone.")]
    stays: Annotated[
        list[str],
        Field(description="Finished steps behind those, whose effects nothing can undo."),
    ]
    effects: EffectsAnswer
    cost_usd: Annotated[
        Usd | None,
        Field(description="What the steps that run again have cost so far; null: unknown."),
    ]


class RepairView(APIView):
    """Repair, narrow and once."""

    required_scope = Scope.RUN_REPAIR
    problem_statuses: ClassVar = {"POST": (409,)}

    @describe(
        "repairRun",
        "Repair a run",
        body=RepairBody,
        answers={200: RepairAnswer},
        parameters=[KEY],
    )
    def post(self, request: Request, id: str) -> Response:  # noqa: A002 - the word in the address
        """Retry a step, go on from a checkpoint, skip an optional step, settle an effect in doubt.

        `retry_step`: a step that failed and brought the run to a halt. `resume` (`step` or
        `from_sequence`): that step and everything behind it again; effects that happened are found
        by their receipts. `skip_step`: an optional step that waits or failed. `settle_effect`
        (`effect_key`, `outcome`, `external_ref` or `output`): what a person found out.
        `compensate_step`: undo one finished step of a run that is paused or over, by its own
        compensation; `with_dependents` undoes what was done behind it first. 409 with a `code`
        when the state forbids it, or another was first.
        """
        principal = caller(request)
        run_id = queries.find_run_id(principal.tenant, id)
        body = RepairBody.read(request.data)
        token = "" if body.preview else read_key(request.headers.get("Idempotency-Key"))
        report = repairing.repair(principal, run_id, body, token=token)
        headers = {"Idempotency-Replayed": "true"} if report.replayed else {}
        return Response(repair_answer(report), headers=headers)


def repair_answer(report: RepairReport) -> dict[str, object]:
    """The report as the API shows it."""
    cost = report.cost_microusd
    return {
        "action": report.action,
        "step": report.step or None,
        "scope": report.scope,
        "preview": report.preview,
        "state": report.state,
        "state_version": report.state_version,
        "reruns": report.reruns,
        "starts": report.starts,
        "undoes": report.undoes,
        "stays": report.stays,
        "effects": {"undone": [], **report.effects},
        "cost_usd": None if cost is None else shapes.usd(cost),
    }
