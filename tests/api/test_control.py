"""Signals, decisions by signal, pause, resume, cancel."""

from __future__ import annotations

import pytest

from orchestrator.models import Event, Run
from tests.desk.documents import gated
from tests.desk.world import Caller, published
from workflows_app.api.answers import RunAnswer, SignalAnswer

pytestmark = pytest.mark.django_db

GO = {"name": "go", "signal_id": "s-1", "payload": {"ok": True}}


@pytest.fixture
def waiting(shop: Caller, carried) -> Run:
    return carried(shop.started)


def signals(run: Run) -> str:
    return f"/v1/workflows/{run.id}/signals"


def test_a_signal_is_accepted_and_taken_by_the_step_that_waits(shop: Caller, waiting: Run) -> None:
    answer = shop.post(signals(waiting), GO)

    SignalAnswer.model_validate(answer.body)
    assert answer.status == 202
    assert answer.body == {
        "accepted": True,
        "applied": True,
        "duplicate": False,
        "transition": "hear: waiting -> completed",
    }


def test_the_same_signal_again_is_a_no_op_with_200(shop: Caller, waiting: Run) -> None:
    shop.post(signals(waiting), GO)
    answer = shop.post(signals(waiting), GO)

    assert (answer.status, answer.body["duplicate"]) == (200, True)


def test_the_same_id_with_another_payload_is_422(shop: Caller, waiting: Run) -> None:
    shop.post(signals(waiting), GO)
    answer = shop.post(signals(waiting), {**GO, "payload": {"ok": False}})

    assert (answer.status, answer.code) == (422, "signal_id_reused")


def test_the_idempotency_key_may_stand_for_the_signal_id(shop: Caller, waiting: Run) -> None:
    body = {"name": "go", "payload": {"ok": True}}

    assert shop.post(signals(waiting), body, key="s-1").status == 202
    assert shop.post(signals(waiting), body, key="s-1").status == 200


@pytest.mark.parametrize(
    ("body", "code", "pointer"),
    [
        ({**GO, "name": "stop"}, "unknown_signal", "/name"),
        ({**GO, "payload": {}}, "payload_invalid", "/payload"),
        ({"name": "go", "payload": {}}, "invalid_body", "/signal_id"),
        ({"signal_id": "x"}, "invalid_body", "/name"),
        ({**GO, "more": 1}, "invalid_body", "/more"),
    ],
)
def test_a_signal_that_does_not_fit_is_422(
    shop: Caller, waiting: Run, body: dict, code: str, pointer: str
) -> None:
    answer = shop.post(signals(waiting), body)

    assert (answer.status, answer.code) == (422, code)
    assert answer.pointers == [pointer]


def test_a_signal_to_a_run_that_is_over_is_409(shop: Caller, waiting: Run) -> None:
    shop.post(f"/v1/workflows/{waiting.id}/cancel", {"reason": "r"})
    answer = shop.post(signals(waiting), GO)

    assert (answer.status, answer.code) == (409, "state_conflict")
    assert answer.body["state"] == "cancelled"


@pytest.fixture
def gate(shop: Caller, carried) -> Run:
    published(gated())
    return carried(lambda: shop.started("needs_approval"))


APPROVE = {"name": "approve", "signal_id": "d-1", "payload": {"decision": "approve"}}


def test_the_key_of_a_gate_is_a_signal_for_who_may_decide(shop: Caller, gate: Run) -> None:
    boss = Caller(actor="user:bea", roles=["finance"])
    answer = boss.post(signals(gate), APPROVE)

    assert (answer.status, answer.body["applied"]) == (202, True)
    again = boss.post(signals(gate), APPROVE)
    assert (again.status, again.body["duplicate"]) == (200, True)


def test_the_gate_is_closed_to_others(shop: Caller, gate: Run) -> None:
    stranger = Caller(actor="user:eve", roles=["moderator"]).post(signals(gate), APPROVE)
    unscoped = Caller(actor="user:bea", roles=["finance"], scopes=["run:signal"])

    assert (stranger.status, stranger.code) == (403, "not_an_assignee")
    assert unscoped.post(signals(gate), APPROVE).code == "missing_scope"


def test_a_run_is_paused_and_goes_on(shop: Caller, waiting: Run) -> None:
    paused = shop.post(f"/v1/workflows/{waiting.id}/pause", {"reason": "month end"})
    RunAnswer.model_validate(paused.body)
    assert (paused.status, paused.body["state"]) == (200, "paused")
    assert paused.body["why"] == (
        "Paused by service:shop: month end. Nothing new starts until somebody resumes it."
    )

    resumed = shop.post(f"/v1/workflows/{waiting.id}/resume", {"reason": "done"})
    assert (resumed.status, resumed.body["state"]) == (200, "waiting")


def test_a_run_is_cancelled_with_actor_and_reason(shop: Caller, waiting: Run) -> None:
    answer = shop.post(f"/v1/workflows/{waiting.id}/cancel", {"reason": "ordered twice"})

    assert (answer.status, answer.body["state"]) == (200, "cancelled")
    assert answer.body["why"] == "Cancelled by service:shop: ordered twice."
    event = Event.objects.filter(run_id=waiting.id, type="run.cancelled").get()
    assert event.actor == "service:shop"


@pytest.mark.parametrize(
    ("before", "act", "state"),
    [
        ("cancel", "cancel", "cancelled"),
        ("cancel", "pause", "cancelled"),
        ("cancel", "resume", "cancelled"),
        ("pause", "pause", "paused"),
        (None, "resume", "waiting"),
    ],
)
def test_what_the_state_forbids_is_409_with_that_state(
    shop: Caller, waiting: Run, before: str | None, act: str, state: str
) -> None:
    if before:
        shop.post(f"/v1/workflows/{waiting.id}/{before}", {"reason": "r"})
    answer = shop.post(f"/v1/workflows/{waiting.id}/{act}", {"reason": "r"})

    assert answer.status == 409
    assert answer.code
    assert answer.body["state"] == state


@pytest.mark.parametrize("act", ["pause", "resume", "cancel", "signals"])
def test_another_tenants_run_is_404(shop: Caller, waiting: Run, act: str) -> None:
    body = GO if act == "signals" else {"reason": "r"}

    assert Caller("rival").post(f"/v1/workflows/{waiting.id}/{act}", body).status == 404
