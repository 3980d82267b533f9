"""Speaking to a run under way: signals, pause, resume, cancel."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from orchestrator import engine
from workflows_app import queries, signalling
from workflows_app.api import shapes
from workflows_app.api.answers import RunAnswer, SignalAnswer
from workflows_app.api.base import caller, describe, header
from workflows_app.principal import Scope
from workflows_app.requests import ReasonBody, SignalBody

SIGNAL_KEY = header("Idempotency-Key", "Stands for `signal_id` when the body has none.")


class SignalsView(APIView):
    """Messages to a run."""

    required_scope = Scope.RUN_SIGNAL
    problem_statuses: ClassVar = {"POST": (409,)}

    @describe(
        "sendSignal",
        "Send a signal",
        body=SignalBody,
        answers={200: SignalAnswer, 202: SignalAnswer},
        parameters=[SIGNAL_KEY],
    )
    def post(self, request: Request, id: str) -> Response:  # noqa: A002 - the word in the address
        """Stored first, then taken by the longest waiting step, or kept until one waits.

        202 when it was accepted; 200 when the same id and payload had been sent before; 409 when
        the run is over. The key of a gate is a valid name for who may decide it.
        """
        result = signalling.send(
            caller(request),
            queries.find_run(caller(request).tenant, id),
            SignalBody.read(request.data),
            key=request.headers.get("Idempotency-Key"),
        )
        body = {
            "accepted": result.accepted,
            "applied": result.applied,
            "duplicate": result.duplicate,
            "transition": result.transition,
        }
        return Response(body, status=200 if result.duplicate else 202)


class PauseView(APIView):
    """Hold a run."""

    required_scope = Scope.RUN_OPERATE
    problem_statuses: ClassVar = {"POST": (409,)}

    @describe("pauseRun", "Pause a run", body=ReasonBody, answers={200: RunAnswer})
    def post(self, request: Request, id: str) -> Response:  # noqa: A002
        """Steps at work finish; nothing new starts until somebody resumes it."""
        actor, run_id, reason = _read(request, id)
        engine.pause_run(run_id, actor=actor, reason=reason)
        return _shown(request, id)


class ResumeView(APIView):
    """Let a paused run go on."""

    required_scope = Scope.RUN_OPERATE
    problem_statuses: ClassVar = {"POST": (409,)}

    @describe("resumeRun", "Resume a run", body=ReasonBody, answers={200: RunAnswer})
    def post(self, request: Request, id: str) -> Response:  # noqa: A002
        """A step whose failure had paused the run is tried again."""
        actor, run_id, reason = _read(request, id)
        engine.resume_run(run_id, actor=actor, reason=reason)
        return _shown(request, id)


class CancelView(APIView):
    """End a run before its time."""

    required_scope = Scope.RUN_OPERATE
    problem_statuses: ClassVar = {"POST": (409,)}

    @describe("cancelRun", "Cancel a run", body=ReasonBody, answers={200: RunAnswer})
    def post(self, request: Request, id: str) -> Response:  # noqa: A002
        """The run and its sub-workflows end as cancelled; late results change nothing."""
        actor, run_id, reason = _read(request, id)
        engine.cancel_run(run_id, actor=actor, reason=reason)
        return _shown(request, id)


def _read(request: Request, id: str) -> tuple[str, UUID, str]:  # noqa: A002
    principal = caller(request)
    run_id = queries.find_run_id(principal.tenant, id)
    return principal.actor, run_id, ReasonBody.read(request.data).reason


def _shown(request: Request, id: str) -> Response:  # noqa: A002
    run = queries.find_run(caller(request).tenant, id)
    return Response(shapes.run_answer(engine.picture(run)))
