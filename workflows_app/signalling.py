"""A message to a run: a declared signal, or the decision of a gate by the gate's name."""

from __future__ import annotations

import re
from typing import Any, Protocol
from uuid import UUID

from django.conf import settings
from django.utils.module_loading import import_string
from rest_framework.exceptions import PermissionDenied

from orchestrator import engine
from orchestrator.core.errors import InvalidRequest
from orchestrator.engine import SignalResult
from orchestrator.models import Run
from workflows_app.principal import Principal, Scope
from workflows_app.requests import SignalBody

_GATE_NAME = re.compile(r"(?P<key>[a-z][a-z0-9_]*)(?P<scope>(\[[0-9]+\])*)", re.ASCII)


class Decided(Protocol):
    """What the decider of gates answers: recorded now, and did it end the gate?"""

    @property
    def applied(self) -> bool:
        """False: the same person had said the same before."""

    @property
    def concluded(self) -> bool:
        """The gate is decided, and its step goes on."""


class GateDecider(Protocol):
    """``ORCHESTRATOR["GATE_DECIDER"]``: the face that knows gates, which this one does not."""

    def __call__(
        self, run_id: UUID, key: str, scope: str, payload: Any, principal: Principal
    ) -> Decided:
        """Decide the gate ``key`` (``scope`` of an item) with the payload of the signal."""


def send(principal: Principal, run: Run, body: SignalBody, *, key: str | None) -> SignalResult:
    """Send a signal; ``key`` stands for the body's missing ``signal_id``.

    Raises InvalidRequest (unknown name, payload against its schema, id reused) and StateConflict.
    """
    signal_id = body.signal_id or key
    if not signal_id:
        detail = "is missing: send one that is new for each signal, or the header Idempotency-Key."
        raise InvalidRequest(
            f"signal_id {detail}",
            code="invalid_body",
            problems=[{"pointer": "/signal_id", "code": "missing", "detail": detail}],
        )
    gate = _gate(run, body.name)
    if gate is not None:
        return _decide(principal, run, gate, body.payload)
    return engine.send_signal(
        run.id,
        name=body.name,
        signal_id=signal_id,
        payload=body.payload,
        actor=principal.actor,
    )


def _gate(run: Run, name: str) -> tuple[str, str] | None:
    """Key and item scope when ``name`` is a gate of the run."""
    workflow = engine.compiled(run.blueprint_id)
    match = _GATE_NAME.fullmatch(name)
    if match is None or match["key"] not in workflow.by_key:
        return None
    if workflow.step(match["key"]).type != "human_gate":
        return None
    return match["key"], match["scope"]


def _decide(principal: Principal, run: Run, gate: tuple[str, str], payload: Any) -> SignalResult:
    if not principal.may(Scope.GATE_DECIDE):
        raise PermissionDenied(
            f"The credential lacks the scope {Scope.GATE_DECIDE}.", code="missing_scope"
        )
    decider: GateDecider = import_string(settings.ORCHESTRATOR["GATE_DECIDER"])
    decided = decider(run.id, *gate, payload, principal)
    return SignalResult(
        accepted=True,
        applied=decided.concluded,
        duplicate=not decided.applied,
        transition="gate.decided" if decided.applied and decided.concluded else None,
    )
