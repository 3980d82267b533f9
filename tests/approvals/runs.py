"""Runs with a gate in them, started and brought to it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from django.db import connection

from approvals_app.decisions import decide, parse_body
from approvals_app.models import Request
from approvals_app.policy import Person
from orchestrator import engine
from orchestrator.core.definition import canonical_json, parse_document
from orchestrator.models import Event, Run, Step
from tests.approvals.builders import GATE, TENANT
from tests.engine.carrier import Carrier


def started(carrier: Carrier, **gate: Any) -> Run:
    """A run of gate, then a step that says the gate's notes; its wake-ups are on the carrier."""
    value = {
        "schema": "orchestrator/v1",
        "name": "order",
        "output": {"gate": "${{ steps.approve.output }}"},
        "steps": {
            "approve": {**GATE, **gate},
            "tell": {
                "type": "agent",
                "model": "offline:echo",
                "needs": ["approve"],
                "prompt": "noted: ${{ steps.approve.output.notes }}",
            },
        },
    }
    document, problems = parse_document(value)
    assert document is not None, problems
    blueprint = engine.register_blueprint(
        tenant=TENANT,
        document=document,
        value=value,
        canonical=canonical_json(value),
        pins={},
    )
    run_id = engine.start_run(
        tenant=TENANT,
        blueprint=blueprint,
        workflow="order",
        version=1,
        input={},
        actor="user:starter",
    )
    return Run.objects.get(pk=run_id)


def asking(carrier: Carrier, **gate: Any) -> Request:
    """The open request of such a run, its step parked."""
    run = started(carrier, **gate)
    carrier.run_all()
    assert step_of(run.pk).state == "waiting"
    return Request.objects.get(run_id=run.pk)


def press(request: Request, *, by: str = "user:ann", choice: str = "approve", **body: Any) -> Any:
    """Somebody of finance decides."""
    return decide(
        request.pk,
        parse_body({"decision": choice, **body}),
        tenant=TENANT,
        person=Person(actor=by, roles=frozenset({"finance"})),
    )


def step_of(run_id: UUID, key: str = "approve") -> Step:
    return Step.objects.get(run_id=run_id, key=key)


def events_of(run_id: UUID, kind: str) -> list[dict[str, Any]]:
    found = Event.objects.filter(run_id=run_id, type=kind).order_by("seq")
    return list(found.values_list("payload", flat=True))


def all_at_once(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """What each call returned or raised; each has its thread and connection, all start together."""
    start = threading.Barrier(len(calls))
    results: list[Any] = [None] * len(calls)

    def work(position: int) -> None:
        try:
            connection.ensure_connection()
            start.wait(timeout=60)
            results[position] = calls[position]()
        except Exception as error:  # noqa: BLE001 - the test looks at what was raised
            results[position] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    return results
