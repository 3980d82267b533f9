"""What exists once: the database itself refuses a second one, whatever the code does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.models import Model

from approvals_app.models import Decision, Request
from orchestrator.clock import new_id
from orchestrator.models import (
    Effect,
    Event,
    Repair,
    Signal,
)
from tests.engine.carrier import Carrier
from tests.engine.ledger import KEYED, pay
from tests.engine.runs import (
    fail,
    ran,
    say,
    step,
)
from tests.engine.test_repair import repair
from tests.engine.test_waits import GATE, GO, press, send
from workflows_app.models import StartKey


def copied(found: Model, **changes: Any) -> Model:
    """The same row again under a new primary key."""
    found.pk = new_id() if isinstance(found.pk, UUID) else None
    found._state.adding = True
    for name, value in changes.items():
        setattr(found, name, value)
    return found


def a_step(carrier: Carrier) -> Model:
    return copied(step(ran(carrier, {"a": say(1)}), "a"))


def an_effect(carrier: Carrier) -> Model:
    ran(carrier, {"a": pay(KEYED, "pay:1")})
    return copied(Effect.objects.get())


def a_signal(carrier: Carrier) -> Model:
    send(ran(carrier, {"a": GO, "b": GO}), 1)
    return copied(Signal.objects.get())


def a_start_key(carrier: Carrier) -> Model:
    named = {"tenant": "acme", "workflow": "flow", "key": "k-1", "fingerprint": "", "answer": {}}
    return copied(StartKey.objects.create(run_id=uuid4(), **named), run_id=uuid4())


def a_repair(carrier: Carrier) -> Model:
    run = ran(carrier, {"a": fail(times=1)})
    repair(run, "retry_step", "a")
    return copied(Repair.objects.get())


def an_open_request(carrier: Carrier) -> Model:
    ran(carrier, {"g": GATE})
    return copied(Request.objects.get(), attempt=2)


def a_decision(carrier: Carrier) -> Model:
    press(ran(carrier, {"g": GATE}))
    return copied(Decision.objects.get())


@pytest.mark.parametrize(
    ("made", "constraint"),
    [
        pytest.param(made, constraint, id=constraint)
        for made, constraint in (
            (a_step, "orchestrator_step_once"),
            (an_effect, "orchestrator_effect_once"),
            (a_signal, "orchestrator_signal_once"),
            (a_start_key, "workflows_start_key_once"),
            (a_repair, "orchestrator_repair_once"),
            (an_open_request, "approvals_request_one_open"),
            (a_decision, "approvals_decision_once"),
        )
    ],
)
def test_the_database_refuses_a_second_row(
    carrier: Carrier, made: Callable[[Carrier], Model], constraint: str
) -> None:
    again = made(carrier)
    with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
        again.save(force_insert=True)


def test_the_database_refuses_a_second_line_of_one_sequence(carrier: Carrier) -> None:
    run = ran(carrier, {"a": say(1)})
    n_lines = Event.objects.filter(run_id=run.pk).count()
    with (
        pytest.raises(IntegrityError),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(
            "INSERT INTO orchestrator_event (run_id, seq, type, at)"
            " SELECT run_id, seq, 'step.forged', at FROM orchestrator_event WHERE run_id = %s",
            [run.pk],
        )
    assert Event.objects.filter(run_id=run.pk).count() == n_lines
