"""Answers that do not end a gate: refused, repeated, or not yet enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest

from approvals_app.decisions import (
    NotAnAssignee,
    decide,
    decide_by_step,
    parse_body,
    person_of,
)
from approvals_app.models import Decision, Request
from approvals_app.requests import on_gate_closed
from orchestrator.core.errors import InvalidRequest, NotFound, StateConflict
from tests.approvals.builders import GATE, TENANT, ask
from tests.conftest import TurnTime

pytestmark = pytest.mark.django_db


@dataclass(frozen=True)
class Caller:
    actor: str
    roles: frozenset[str] = frozenset({"finance"})
    tenant: str = TENANT


ANN, BOB = Caller("user:ann"), Caller("user:bob")
TWO_OF_THEM = {**GATE, "quorum": 2}


def say(request: Request, caller: Caller, **body: Any) -> Any:
    return decide(
        request.pk,
        parse_body({"decision": "approve", **body}),
        tenant=caller.tenant,
        person=person_of(caller),
    )


def test_the_first_of_two_approvers_is_noted_and_the_gate_stays_open() -> None:
    request = ask(TWO_OF_THEM)

    result = say(request, ANN, notes="fine with me")

    assert result.applied
    assert not result.concluded
    assert result.request.state == "open"
    assert [(d.by, d.choice, d.notes) for d in Decision.objects.all()] == [
        ("user:ann", "approve", "fine with me")
    ]


def test_a_double_click_is_one_decision() -> None:
    request = ask(TWO_OF_THEM)

    first, second = say(request, ANN), say(request, ANN)

    assert first.applied
    assert not second.applied
    assert Decision.objects.count() == 1


def test_who_has_approved_cannot_reject_afterwards() -> None:
    request = ask(TWO_OF_THEM)
    say(request, ANN)

    with pytest.raises(StateConflict) as refusal:
        say(request, ANN, decision="reject")

    assert refusal.value.code == "already_answered"
    assert refusal.value.state == "open"


def test_somebody_without_the_role_may_not_decide() -> None:
    request = ask()

    with pytest.raises(NotAnAssignee, match="role:finance"):
        say(request, Caller("user:eve", roles=frozenset({"moderator"})))

    assert not Decision.objects.exists()


def test_four_eyes_keeps_the_starter_out_however_many_roles_they_hold() -> None:
    request = ask({**GATE, "four_eyes": True})

    with pytest.raises(NotAnAssignee, match="four_eyes"):
        say(request, Caller("user:starter"))


def test_another_tenants_approval_does_not_exist() -> None:
    with pytest.raises(NotFound):
        say(ask(), Caller("user:ann", tenant="other"))


@pytest.mark.parametrize("reason", ["timeout", "cancelled"])
def test_a_closed_gate_refuses_and_names_its_state(reason: str) -> None:
    request = ask()
    payload = {"step": "approve", "scope": "", "attempt": 1, "reason": reason}
    on_gate_closed(request.run_id, payload)

    with pytest.raises(StateConflict) as refusal:
        say(request, ANN)

    assert refusal.value.state == ("expired" if reason == "timeout" else "cancelled")


FORM = {
    "type": "object",
    "required": ["limit"],
    "properties": {"limit": {"type": "integer", "maximum": 10}},
}


@pytest.mark.parametrize(
    ("data", "pointers"), [(None, ["/data"]), ({"limit": 11}, ["/data/limit"]), (3, ["/data"])]
)
def test_data_that_breaks_the_form_is_refused_with_pointers(data: Any, pointers: list[str]) -> None:
    request = ask({**TWO_OF_THEM, "form": FORM})

    with pytest.raises(InvalidRequest) as refusal:
        say(request, ANN, data=data)

    assert refusal.value.code == "form_invalid"
    assert [each["pointer"] for each in refusal.value.problems] == pointers
    assert not Decision.objects.exists()


def test_data_that_fits_the_form_is_kept() -> None:
    request = ask({**TWO_OF_THEM, "form": FORM})

    say(request, ANN, data={"limit": 10})

    assert Decision.objects.get().data == {"limit": 10}


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/decision"),
        ({"decision": "approved"}, "/decision"),
        ({"decision": "approve", "note": "typo"}, "/note"),
        ({"decision": "approve", "notes": 5}, "/notes"),
        ({"decision": "approve", "notes": "x" * 10_001}, "/notes"),
        ({"decision": "approve", "notes": "a\x00b"}, "/notes"),
        ({"decision": "approve", "data": {"a": ["\x00"]}}, "/data"),
        ([], ""),
        (None, ""),
        ("approve", ""),
    ],
)
def test_a_malformed_body_is_refused_with_a_pointer(body: Any, pointer: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        parse_body(body)

    assert [each["pointer"] for each in refusal.value.problems] == [pointer]


def test_escalated_people_may_decide_once_their_time_has_come(turn_time: TurnTime) -> None:
    escalate = [{"after": "1h", "to": ["role:lead"]}]
    request = ask({**TWO_OF_THEM, "escalate": escalate})
    lead = Caller("user:lea", roles=frozenset({"lead"}))
    with pytest.raises(NotAnAssignee):
        say(request, lead)

    turn_time(3601)

    assert say(request, lead).applied


def test_a_signal_named_like_the_gate_decides_for_its_people_only() -> None:
    request = ask(TWO_OF_THEM)
    body = {"decision": "approve", "notes": "by signal"}

    result = decide_by_step(request.run_id, "approve", "", body, ANN)

    assert result.applied
    with pytest.raises(NotAnAssignee):
        decide_by_step(request.run_id, "approve", "", body, Caller("user:eve", frozenset()))


def test_a_signal_to_a_gate_that_has_not_asked_yet_is_refused() -> None:
    with pytest.raises(StateConflict) as refusal:
        decide_by_step(uuid4(), "approve", "", {"decision": "approve"}, ANN)

    assert refusal.value.code == "gate_not_open"
