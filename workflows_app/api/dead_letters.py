"""Steps that gave up: listed, and retried one by one or by the many."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar
from uuid import UUID

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from orchestrator.models import DeadLetter
from workflows_app import repairing
from workflows_app.api.answers import Answer, Cursor, ErrorAnswer
from workflows_app.api.base import CURSOR, LIMIT, caller, describe, header, page, query
from workflows_app.principal import Scope
from workflows_app.repairing import LetterFilter, RetryBody, SettleBody
from workflows_app.triggering import read_key

KEY = header("Idempotency-Key", "Required unless `dry_run`. The same key retries each once.")
FILTERS = ("workflow", "service", "region", "reason", "run")
SETTLE_KEY = header("Idempotency-Key", "Required. The same key settles it once.")


class LetterAnswer(Answer):
    """A step that gave up."""

    id: int
    instance_id: UUID
    workflow: str
    step: str
    scope: str
    service: str
    region: Annotated[str, Field(description="The label behind @ in the step's queue.")]
    reason: Annotated[
        str, Field(description="exhausted, permanent, quarantined, compensation, irreversible.")
    ]
    error: ErrorAnswer
    attempts: int
    created_at: datetime
    retried_at: datetime | None
    settled_at: datetime | None
    settled_by: str | None
    settlement: Annotated[str | None, Field(description="Why a person closed it by hand.")]


class LetterPage(Answer):
    """Dead letters, newest first."""

    results: list[LetterAnswer]
    next: Cursor


class RetriedAnswer(Answer):
    """What became of one of them."""

    id: int
    instance_id: UUID
    step: str
    scope: str
    status: Annotated[str, Field(description="retried, or refused.")]
    code: Annotated[str | None, Field(description="Why it was refused, to program against.")]
    detail: str | None


class BulkAnswer(Answer):
    """`count` dead letters fit; `results` has those that were handled by this call."""

    count: int
    dry_run: bool
    results: list[RetriedAnswer]
    next: Annotated[
        int | None, Field(description="Send it as `after` to go on; null: these were all.")
    ]


class LettersView(APIView):
    """The dead letters of a tenant."""

    required_scope = Scope.RUN_READ

    @describe(
        "listDeadLetters",
        "List steps that gave up, newest first",
        answers={200: LetterPage},
        parameters=[
            query("workflow", "Name of a workflow."),
            query("service", "The outside service that the step belongs to."),
            query("region", "The region that its queue belongs to."),
            query("reason", "Why it gave up."),
            query("run", "Id of a run."),
            query("state", "Not given: open.", enum=["open", "retried", "settled", "all"]),
            CURSOR,
            LIMIT,
        ],
        tag="Dead letters",
    )
    def get(self, request: Request) -> Response:
        """Each with its reason, its error and the attempts it took."""
        given = {n: request.query_params[n] for n in FILTERS if n in request.query_params}
        state = request.query_params.get("state", "open")
        found = repairing.letters(caller(request).tenant, LetterFilter.read(given), state=state)
        return page(self, request, found, lambda rows: [_letter(letter) for letter in rows])


class RetryLettersView(APIView):
    """The way back."""

    required_scope = Scope.RUN_REPAIR

    @describe(
        "retryDeadLetters",
        "Retry steps that gave up",
        body=RetryBody,
        answers={200: BulkAnswer},
        parameters=[KEY],
        tag="Dead letters",
    )
    def post(self, request: Request) -> Response:
        """Retry those of `ids`, or the open ones that fit `filter`, oldest first.

        At most 100 in one call; call again with `next` as `after` while it is not null. `dry_run`
        gives the count. Each is a repair of its own: one that is refused says why, and stays open.
        """
        body = RetryBody.read(request.data)
        token = "" if body.dry_run else read_key(request.headers.get("Idempotency-Key"))
        done = repairing.retry_letters(caller(request), body, token=token)
        results = [
            {
                "id": each.letter.pk,
                "instance_id": each.letter.run_id,
                "step": each.letter.step.key,
                "scope": each.letter.step.scope,
                "status": each.status,
                "code": each.code or None,
                "detail": each.detail or None,
            }
            for each in done.results
        ]
        answer = {"count": done.count, "dry_run": body.dry_run, "results": results}
        return Response({**answer, "next": done.next})


class SettleLetterView(APIView):
    """What no machine can do."""

    required_scope = Scope.RUN_REPAIR
    problem_statuses: ClassVar = {"POST": (409,)}

    @describe(
        "settleDeadLetter",
        "Settle a dead letter by hand",
        body=SettleBody,
        answers={200: LetterAnswer},
        parameters=[SETTLE_KEY],
        tag="Dead letters",
    )
    def post(self, request: Request, id: int) -> Response:  # noqa: A002 - the word in the address
        """A person has done what it asked for outside, or nothing is to be done: it is closed.

        Neither the run nor its effects change; the reason stands in the history. 409
        `letter_closed` when its step runs again, or somebody was first.
        """
        principal = caller(request)
        body = SettleBody.read(request.data)
        token = read_key(request.headers.get("Idempotency-Key"))
        first = repairing.settle_letter(principal, id, body, token=token)
        letter = repairing.letters(principal.tenant, LetterFilter(), state="all").get(pk=id)
        headers = {} if first else {"Idempotency-Replayed": "true"}
        return Response(_letter(letter), headers=headers)


def _letter(letter: DeadLetter) -> dict[str, Any]:
    return {
        "id": letter.pk,
        "instance_id": letter.run_id,
        "workflow": letter.workflow,
        "step": letter.step.key,
        "scope": letter.step.scope,
        "service": letter.service,
        "region": letter.region,
        "reason": letter.reason,
        "error": letter.error,
        "attempts": letter.attempts,
        "created_at": letter.created_at,
        "retried_at": letter.retried_at,
        "settled_at": letter.settled_at,
        "settled_by": letter.settled_by or None,
        "settlement": letter.settlement or None,
    }
