"""Routers that ask a model: what it is told, what is kept, and what happens when nobody answers."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator import engine
from orchestrator.core import briefing
from orchestrator.models import Event, Turn
from tests.effects.forked import die, dies
from tests.engine.carrier import Always, Carrier
from tests.engine.runs import error, lose, output, payload, ran, started, steps_of
from tests.engine.runs import say as said
from tests.llm.conftest import Models
from tests.llm.stub import ModelStub, Reply, refuse, say

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("models")]
ROUTER: dict[str, Any] = {
    "type": "router",
    "strategy": "llm",
    "model": "fast",
    "question": "Where does this go? ${{ input.text }}",
    "default": "other",
    "routes": [
        {"id": "billing", "to": ["pay"], "description": "invoices", "when": "input.amount > 100"},
        {"id": "shipping", "to": ["ship"], "description": "parcels"},
        {"id": "other", "to": ["rest"]},
    ],
}
STEPS = {"r": ROUTER, "pay": said("pay"), "ship": said("ship"), "rest": said("rest")}
INPUT = {"text": "Where is my parcel?", "amount": 5}


def decided(run: Any) -> Any:
    return payload(run, "router.decided")


def test_a_model_chooses_and_the_whole_context_is_kept(carrier: Carrier, stub: ModelStub) -> None:
    stub.replies["a"] = [say("shipping")]
    before = {**STEPS, "r": {**ROUTER, "needs": ["first"]}, "first": said({"found": "a parcel"})}

    run = ran(carrier, before, INPUT)

    assert output(run) == {"ship": "ship"}
    assert decided(run)["routes"] == ["shipping"]
    assert [each["id"] for each in decided(run)["rejected"]] == ["billing", "other"]
    (body,) = stub.asked
    system, question = (message["content"] for message in body["messages"])
    assert "billing: invoices" in system
    assert "first completed" in question
    assert 'first: {"found": "a parcel"}' in question
    assert "pay (tool): blocked" in question
    assert question.endswith("----------\nWhere does this go? Where is my parcel?")
    kept = Turn.objects.get(run_id=run.pk)
    assert kept.content["context"]["question"].endswith("Where is my parcel?")
    assert kept.content["context"]["background"] in question
    assert kept.content["text"] == "shipping"
    run.refresh_from_db()
    assert run.cost_microusd == 105


def test_what_a_routing_model_sees_is_bounded(carrier: Carrier, stub: ModelStub) -> None:
    stub.replies["a"] = [say("other")]
    steps: dict[str, Any] = {f"s{n}": said("word " * 3000) for n in range(6)}
    wide = [
        {"id": f"route_{n}", "to": ["rest"], "description": "long words " * 200} for n in range(20)
    ]
    router = {**ROUTER, "routes": [*wide, {"id": "other", "to": ["rest"]}], "needs": list(steps)}

    text = {"text": "ä " * 5000, "amount": 1}
    run = ran(carrier, {**steps, "r": router, "rest": said(1)}, text)

    system, question = (message["content"] for message in stub.asked[0]["messages"])
    background, _, asked = question.partition("----------\n")
    assert briefing.tokens(system) <= briefing.GRAPH + 40
    assert briefing.tokens(asked) <= briefing.QUESTION
    assert briefing.tokens(background) <= 2000 + 60
    assert all(f"route_{n}" in system for n in range(20)), "no id is ever cut"
    assert background.count("(cut)") == 3, "the last three outputs, each cut"
    assert "was cut" in decided(run)["inputs"]["cut"]


@pytest.mark.parametrize("answer", ["nowhere", "", "billing, shipping", "I would say billing"])
def test_an_answer_that_names_no_route_is_the_default(
    carrier: Carrier, stub: ModelStub, answer: str
) -> None:
    stub.replies["a"] = [Reply(text=answer)]

    run = ran(carrier, STEPS, INPUT)

    assert output(run) == {"rest": "rest"}
    assert decided(run)["defaulted"] is True
    assert "degraded" not in decided(run)


@pytest.mark.parametrize(("amount", "route"), [(500, "billing"), (5, "other")])
@pytest.mark.parametrize("reply", [refuse(500), refuse(429), Reply(raw=b"<html>")])
def test_when_no_provider_answers_rules_or_the_default_decide_and_it_is_said(
    carrier: Carrier, stub: ModelStub, reply: Reply, amount: int, route: str
) -> None:
    stub.replies = {"a": [reply], "b": [reply]}

    run = ran(carrier, STEPS, {**INPUT, "amount": amount})

    assert decided(run)["routes"] == [route]
    assert decided(run)["degraded"] is True
    assert "one:a" in decided(run)["inputs"]["degraded"]
    by = "its rules" if route == "billing" else "the default"
    assert decided(run)["why"].startswith(f"no model answered, so {by} decided")
    assert steps_of(run)["r"] == "completed"
    n_failed = Event.objects.filter(run_id=run.pk, type="call.failed").count()
    assert n_failed == 2


def test_held_models_degrade_a_router_and_do_not_stop_it(carrier: Carrier, stub: ModelStub) -> None:
    for name in ("one", "two"):
        engine.hold("service", name, reason="outage", actor="user:ann")

    run = ran(carrier, STEPS, INPUT)

    assert output(run) == {"rest": "rest"}
    assert decided(run)["degraded"] is True
    assert "outage" in decided(run)["inputs"]["degraded"]
    assert not stub.asked


def test_a_request_that_no_model_takes_fails_the_router(carrier: Carrier, stub: ModelStub) -> None:
    stub.replies["a"] = [refuse(400, "too long")]

    assert error(ran(carrier, STEPS, INPUT))["class"] == "permanent"


def test_a_crash_after_the_answer_does_not_ask_again(carrier: Carrier, stub: ModelStub) -> None:
    stub.replies["a"] = [say("shipping"), say("billing")]
    run_id = started(STEPS, INPUT)
    carrier.messages.clear()

    def work() -> None:
        from orchestrator import crash

        crash.set_hook(lambda name: die() if name == "body:after" else None)
        engine.run_step(engine.Order(run_id=run_id, key="r"), Always())

    dies(work)
    lose(run_id, "r")
    engine.beat_once()
    carrier.run_all()

    assert output(run_id) == {"ship": "ship"}
    assert stub.n_asked["a"] == 1


def test_a_score_that_is_no_number_decides_nothing(carrier: Carrier, models: Models) -> None:
    score = {
        **ROUTER,
        "strategy": "score",
        "value": "double(input.text)",
        "routes": [{"id": "billing", "to": ["pay"], "at_least": 1}, {"id": "other", "to": []}],
    }
    steps = {"r": score, "pay": said("pay")}

    assert output(ran(carrier, steps, {"text": "1e300"})) == {"pay": "pay"}
    for text in ("NaN", "Infinity"):
        assert error(ran(carrier, steps, {"text": text}))["class"] == "condition_error"


def test_tokens_are_reckoned_rather_too_high() -> None:
    assert briefing.tokens("") == 0
    assert briefing.tokens("word " * 100) >= 100
    assert briefing.tokens("日本語") == 9
    long = "one two three " * 400
    assert briefing.tokens(briefing.bounded(long, 100)) <= 100
    assert briefing.bounded("short", 100) == "short"
    assert briefing.bounded(long, 100).endswith("(cut)")
