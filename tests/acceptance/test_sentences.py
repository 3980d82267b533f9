"""What was promised in so many words. Each test is named after its sentence; time is turned."""

from __future__ import annotations

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from threading import Event as Flag
from typing import Any

import pytest

from orchestrator import engine
from orchestrator.models import Effect, Event, Repair, Run, Step
from tests.adapters.smtp import PostOffice
from tests.adapters.web import Web
from tests.desk.world import TENANT, Caller, published
from tests.engine import probes
from tests.engine.carrier import Carrier
from tests.engine.test_concurrency import all_at_once
from workflows_app.gallery.models import DemoLedgerEntry

DAY = 86_400
ORDER = {"order_id": "A-1", "amount_cents": 9900, "customer_email": "ada@example.com"}
Turn = Callable[[float], None]


def document(steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"schema": "orchestrator/v1", "name": "case", "steps": steps, **more}


def run_of(shop: Caller, run: Run) -> dict[str, Any]:
    return dict(shop.get(f"/v1/workflows/{run.id}").body)


def beat(carrier: Carrier) -> None:
    engine.beat_once()
    carrier.run_all()


# -- email sent but CRM fails ----------------------------------------------------------------------


@pytest.mark.parametrize("how", ["refuses", "is down"])
def test_email_sent_but_crm_fails(
    shop: Caller, carrier: Carrier, post: PostOffice, web: Web, turn_time: Turn, how: str
) -> None:
    """The mail stays one mail: while the CRM is tried again, and when an operator repairs."""
    crm: dict[str, Any] = {"type": "tool", "tool": "http.request", "needs": ["mail"]}
    crm["input"] = {"method": "PUT", "url": f"{web.url}/orders/A-1", "json": {"stage": "paid"}}
    if how == "refuses":
        crm["effect"] = {"key": "crm:A-1"}
    letter = {"to": "ada@example.com", "subject": "Receipt", "text": "Thank you"}
    mail = {"type": "tool", "tool": "mail.send", "input": letter, "effect": {"key": "mail:A-1"}}
    published(document({"mail": mail, "crm": crm}))
    web.answer("/orders/A-1", 422 if how == "refuses" else 503, b"no")

    run = shop.started("case", input={})
    carrier.run_all()
    for _ in range(4):
        turn_time(120)
        beat(carrier)

    seen = run_of(shop, run)
    assert (seen["state"], len(post.letters)) == ("failed", 1)
    assert {s["key"]: s["state"] for s in seen["steps"]} == {"mail": "completed", "crm": "failed"}
    assert len(web.seen) == (1 if how == "refuses" else 4)

    web.answer("/orders/A-1", 200, b"{}", Content_Type="application/json")
    body = {"action": "retry_step", "step": "crm", "reason": "the CRM is mended"}
    assert shop.post(f"/v1/workflows/{run.id}/repair", body, key="r-1").status == 200
    carrier.run_all()

    assert run_of(shop, run)["state"] == "completed"
    assert len(post.letters) == 1, "the customer was told once"
    assert Effect.objects.get(idempotency_key="mail:A-1").status == "applied"


# -- approval waits seven days, then expires -------------------------------------------------------


def test_approval_waits_seven_days_then_expires(
    shop: Caller, carrier: Carrier, post: PostOffice, turn_time: Turn
) -> None:
    run = shop.started("order_payment", input=ORDER)
    carrier.run_all()
    approver = Caller(actor="user:bea", roles=["finance"])
    (asked,) = approver.get("/v1/approvals").body["results"]

    for _ in range(6):
        turn_time(DAY)
        beat(carrier)
    turn_time(DAY - 60)
    beat(carrier)
    waiting = run_of(shop, run)
    assert (waiting["state"], waiting["waiting_for"]) == ("waiting", "person")
    assert waiting["label"] == "Approval pending"
    assert not Step.objects.filter(state="running").exists(), "nobody is held while it waits"
    assert approver.get(f"/v1/approvals/{asked['id']}").body["state"] == "open"

    turn_time(120)
    beat(carrier)
    over = run_of(shop, run)
    assert (over["state"], over["outcome"]) == ("completed", "rejected")
    assert approver.get(f"/v1/approvals/{asked['id']}").body["state"] == "expired"
    decided = Event.objects.get(run_id=run.pk, type="gate.decided")
    assert decided.payload["by"] == "system:timeout"
    late = approver.post(f"/v1/approvals/{asked['id']}/decision", {"decision": "approve"})
    assert late.status == 409
    carrier.run_all()
    assert not DemoLedgerEntry.objects.exists(), "nothing was charged"
    assert post.letters == []


# -- provider that never answers -------------------------------------------------------------------


def test_provider_that_never_answers(
    shop: Caller, carrier: Carrier, web: Web, turn_time: Turn
) -> None:
    """It is asked once, the worker is free again, and a person finds out what became of it."""
    answers = Flag()

    def silent(handler: BaseHTTPRequestHandler) -> None:
        answers.wait(30)
        handler.close_connection = True

    web.answers["/charges"] = silent
    given = {"method": "POST", "url": f"{web.url}/charges", "json": {"cents": 9900}}
    charge = {"type": "tool", "tool": "http.request", "input": {**given, "timeout_s": 0.3}}
    steps = {"charge": {**charge, "effect": {"key": "pay:A-1", "money": True}}}
    published(document(steps))
    try:
        run = shop.started("case", input={})
        carrier.run_all()
        for _ in range(3):
            turn_time(DAY / 4)
            beat(carrier)

        seen = run_of(shop, run)
        assert (seen["state"], seen["waiting_for"]) == ("waiting", "review")
        assert "did not answer within 0.3 s" in seen["why"]
        assert len(web.seen) == 1, "money is never sent a second time on suspicion"
        assert not Step.objects.filter(state="running").exists()
    finally:
        answers.set()

    web.answer("/charges", 201, b'{"id": "ch_1"}', Content_Type="application/json")
    body = {"action": "settle_effect", "effect_key": "pay:A-1", "outcome": "not_applied"}
    asked = {**body, "reason": "their list has no such charge"}
    assert shop.post(f"/v1/workflows/{run.id}/repair", asked, key="r-1").status == 200
    carrier.run_all()

    assert run_of(shop, run)["state"] == "completed"
    assert [call.headers["idempotency-key"] for call in web.seen] == ["pay:A-1"] * 2
    assert Effect.objects.get().external_ref == "ch_1"


# -- the same signal twice -------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [False, True])
def test_the_same_signal_twice(shop: Caller, carrier: Carrier, at_once: bool) -> None:
    """One of two waiting steps takes it, once; the second time it is a no-op."""
    wait = {"type": "wait", "signal": "paid"}
    book = {"type": "tool", "tool": "probe.count", "input": {"name": "booked"}}
    steps = {
        "first": wait,
        "book": {**book, "needs": ["first"]},
        "second": {**wait, "needs": ["first"]},
    }
    published(document(steps))
    run = shop.started("case", input={})
    carrier.run_all()
    body = {"name": "paid", "signal_id": "evt-1", "payload": {"cents": 5}}

    def send() -> int:
        return shop.post(f"/v1/workflows/{run.id}/signals", body).status

    answers = all_at_once([send] * 2) if at_once else [send(), send()]
    carrier.run_all()
    answers.append(send())
    carrier.run_all()

    assert sorted(answers) == [200, 200, 202]
    states = {s["key"]: s["state"] for s in run_of(shop, run)["steps"]}
    assert states == {"first": "completed", "book": "completed", "second": "waiting"}
    assert probes.calls["booked"] == 1
    assert Event.objects.filter(run_id=run.pk, type="signal.received").count() == 1
    other = shop.post(f"/v1/workflows/{run.id}/signals", {**body, "payload": {"cents": 6}})
    assert (other.status, other.code) == (422, "signal_id_reused")


# -- definition published while runs are open ------------------------------------------------------


def test_definition_published_while_runs_are_open(shop: Caller, carrier: Carrier) -> None:
    """An open run ends by the version that it began with; a new one takes the new version."""
    wait = {"type": "wait", "signal": "go"}

    def says(value: str) -> dict[str, Any]:
        tool = {"type": "tool", "tool": "probe.say", "input": {"value": value}}
        return {"hear": wait, "say": {**tool, "needs": ["hear"]}}

    published(document(says("old")))
    old = shop.started("case", key="k-1", input={})
    carrier.run_all()

    more = {"type": "tool", "tool": "probe.say", "needs": ["say"], "input": {"value": "more"}}
    assert shop.post("/v1/definitions", document({**says("new"), "more": more})).status == 201
    new = shop.started("case", key="k-2", input={})
    pinned = shop.started("case", key="k-3", input={}, version=1)
    carrier.run_all()
    for run in (old, new, pinned):
        shop.post(f"/v1/workflows/{run.id}/signals", {"name": "go", "signal_id": "s"})
    carrier.run_all()

    ends = [run_of(shop, run) for run in (old, new, pinned)]
    assert [end["version"] for end in ends] == [1, 2, 1]
    assert [end["output"] for end in ends] == [{"say": "old"}, {"more": "more"}, {"say": "old"}]
    again = shop.start("case", key="k-1", input={})
    assert (again.status, again.body["version"]) == (200, 1), "the key keeps its first run"


# -- two operators repair the same step at once ----------------------------------------------------


@pytest.mark.parametrize("careful", [True, False], ids=["with the version seen", "without"])
def test_two_operators_repair_the_same_step_at_once(
    shop: Caller, carrier: Carrier, careful: bool
) -> None:
    """One acts, the other is told what forbids it, and the step runs once."""
    flaky = {"type": "tool", "tool": "probe.fail", "input": {"times": 1, "kind": "permanent"}}
    count = {"type": "tool", "tool": "probe.count", "needs": ["a"], "input": {"name": "b"}}
    published(document({"a": flaky, "b": count}))
    run = shop.started("case", input={})
    carrier.run_all()
    seen = run_of(shop, run)
    assert seen["state"] == "failed"
    body = {"action": "retry_step", "step": "a", "reason": "mended"}
    if careful:
        body["expected_version"] = seen["state_version"]
    operators = [Caller(TENANT, actor=f"user:op{n}") for n in range(2)]

    def repairs(number: int) -> Callable[[], Any]:
        path = f"/v1/workflows/{run.id}/repair"
        return lambda: operators[number].post(path, body, key=f"mine-{number}")

    answers = sorted(all_at_once([repairs(0), repairs(1)]), key=lambda answer: answer.status)
    carrier.run_all()

    acted, late = answers
    assert (acted.status, late.status) == (200, 409)
    assert late.code == ("stale_version" if careful else "state_conflict")
    assert late.body["detail"]
    assert acted.body["reruns"] == ["a"]
    assert run_of(shop, run)["state"] == "completed"
    assert probes.calls["b"] == 1
    assert Step.objects.get(run=run, key="a").attempt == 2
    assert Repair.objects.count() == 1
