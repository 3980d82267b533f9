"""The saga ledger of a run."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from orchestrator import engine
from workflows_app import queries
from workflows_app.api.answers import Answer
from workflows_app.api.base import caller, describe
from workflows_app.principal import Scope


class SagaLineAnswer(Answer):
    """A step that acts outside, or can be undone."""

    step: str
    scope: str
    state: Annotated[
        str,
        Field(
            description="done, under_way, unknown, given_up, not_done, undoing, undone, not_undone"
            " (its compensation gave up), irreversible."
        ),
    ]
    effect_key: str | None
    compensation_key: str | None
    external_ref: Annotated[str | None, Field(description="The provider's name for it.")]
    attempts: Annotated[int, Field(description="Of the compensation once it has begun.")]
    at: Annotated[datetime | None, Field(description="When it was done, or undone.")]
    why: str | None
    turn: Annotated[
        int | None,
        Field(description="Place in the order of undoing, from 1; null: nothing undoes it."),
    ]
    task: Annotated[int | None, Field(description="The open dead letter: a person has to act.")]


class SagaAnswer(Answer):
    """What the run did outside and what of it was undone, in the order of undoing."""

    instance_id: UUID
    state: str
    compensation: str | None
    results: list[SagaLineAnswer]
    truncated: Annotated[bool, Field(description="There is more than can be shown.")]


class SagaView(APIView):
    """The saga of a run."""

    required_scope = Scope.RUN_READ

    @describe("readSaga", "Read the saga ledger of a run", answers={200: SagaAnswer})
    def get(self, request: Request, id: str) -> Response:  # noqa: A002 - the word in the address
        """For each step that acts outside: done, undone, could not be undone, unknown."""
        run = queries.find_run(caller(request).tenant, id)
        lines = engine.saga_ledger(run)
        return Response(
            {
                "instance_id": run.id,
                "state": run.state,
                "compensation": run.compensation or None,
                "results": [_line(line) for line in lines],
                "truncated": len(lines) >= engine.MAX_SAGA_LINES,
            }
        )


def _line(line: engine.SagaLine) -> dict[str, object]:
    return {
        "step": line.step,
        "scope": line.scope,
        "state": line.state,
        "effect_key": line.effect_key or None,
        "compensation_key": line.compensation_key or None,
        "external_ref": line.external_ref or None,
        "attempts": line.attempts,
        "at": line.at,
        "why": line.why or None,
        "turn": line.turn,
        "task": line.task,
    }
