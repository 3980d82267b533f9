"""Providers that fail, seen through runs: who is asked next, what the history says, what waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from orchestrator import engine
from orchestrator.core.errors import InvalidRequest
from orchestrator.models import Breaker, Event, ModelAlias, Run, Turn
from tests.engine.carrier import Carrier
from tests.engine.replays import assert_replays
from tests.engine.runs import error, events, output, ran, settle_down, state, step
from tests.llm.conftest import Models
from tests.llm.stub import ModelStub, Reply, refuse, say

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("models")]
Time = Callable[[float], None]
AGENT: dict[str, Any] = {"type": "agent", "model": "fast", "prompt": "hello", "timeout": "10s"}
SCHEMA = {
    "type": "object",
    "required": ["n"],
    "additionalProperties": False,
    "properties": {"n": {"type": "integer"}},
}
ME = {"actor": "user:ann", "reason": "provider outage"}


def told(run: Run, kind: str) -> list[dict[str, Any]]:
    found = Event.objects.filter(run_id=run.pk, type=kind).order_by("seq")
    return list(found.values_list("payload", flat=True))


@pytest.mark.parametrize(
    ("reply", "error_class"),
    [
        (refuse(429, "slow down"), "rate_limit"),
        (refuse(500, "oops"), "transient"),
        (refuse(401, "bad key"), "permanent"),
        (Reply(raw=b"<html>"), "transient"),
        (Reply(text="late", delay=3), "timeout"),
    ],
)
def test_what_speaks_against_a_model_is_left_for_the_next(
    carrier: Carrier, stub: ModelStub, models: Models, reply: Reply, error_class: str
) -> None:
    models(timeout_s=0.3)
    stub.replies = {"a": [reply], "b": [say("from b")]}

    run = ran(carrier, {"a": AGENT})

    assert output(run)["a"] == {"text": "from b"}
    assert (stub.n_asked["a"], stub.n_asked["b"]) == (1, 1)
    (failed,) = told(run, "call.failed")
    assert (failed["model"], failed["class"], failed["step"]) == ("one:a", error_class, "a")
    (answered,) = told(run, "call.answered")
    assert answered["model"] == "two:b"
    assert answered["cost_microusd"] == 10
    assert "one:a" in answered["instead_of"][0]
    assert step(run, "a").attempt == 1
    run.refresh_from_db()
    assert run.cost_unknown is (error_class == "timeout" or reply.raw is not None)
    assert (run.cost_microusd, run.tokens_in, run.tokens_out) == (10, 10, 5)


def test_what_speaks_against_the_request_ends_it(carrier: Carrier, stub: ModelStub) -> None:
    stub.replies = {"a": [refuse(400, "context too long")]}

    run = ran(carrier, {"a": AGENT})

    assert error(run)["class"] == "permanent"
    assert "context too long" in error(run)["message"]
    assert stub.n_asked["b"] == 0


def test_when_all_fail_the_step_is_retried_by_its_own_policy(
    carrier: Carrier, stub: ModelStub, turn_time: Time
) -> None:
    stub.replies = {"a": [refuse(500), say("at last")], "b": [refuse(503)]}

    run = ran(carrier, {"a": AGENT})
    assert step(run, "a").state == "retrying"
    shown = step(run, "a").error
    settle_down(carrier, turn_time)

    assert output(run)["a"] == {"text": "at last"}
    assert "step.retry_scheduled" in events(run, "a")
    assert [each["model"] for each in shown["details"]["tried"]] == ["one:a", "two:b"]


def test_an_answer_is_corrected_and_each_turn_is_kept(carrier: Carrier, stub: ModelStub) -> None:
    stub.replies = {"a": [say("one"), say({"n": "1"}), say({"n": 1})]}

    run = ran(carrier, {"a": {**AGENT, "output_schema": SCHEMA}})

    assert output(run)["a"] == {"n": 1}
    assert "not JSON" in stub.asked[1]["messages"][-1]["content"]
    assert "/n" in stub.asked[2]["messages"][-1]["content"]
    kept = Turn.objects.filter(run_id=run.pk)
    assert [(t.number, t.kind, t.name, t.cost_microusd) for t in kept] == [
        (n, "model", "one:a", 105) for n in (1, 2, 3)
    ]
    run.refresh_from_db()
    assert (run.cost_microusd, step(run, "a").cost_microusd) == (315, 315)
    assert step(run, "a").model == "one:a"


def test_corrections_end(carrier: Carrier, stub: ModelStub) -> None:
    stub.replies = {"a": [say("never")]}

    run = ran(carrier, {"a": {**AGENT, "output_schema": SCHEMA}})

    assert error(run)["class"] == "schema_error"
    assert stub.n_asked["a"] == 3


def test_a_repair_begins_the_conversation_anew(carrier: Carrier, stub: ModelStub) -> None:
    stub.replies = {"a": [say("no"), say("no"), say("no"), say({"n": 2})]}
    run = ran(carrier, {"a": {**AGENT, "output_schema": SCHEMA}})
    assert state(run) == "failed"

    engine.repair_run(
        run.pk, action="retry_step", step="a", token="t", actor="user:op", role="operator",
        reason="try once more", details={},
    )  # fmt: skip
    carrier.run_all()

    assert output(run)["a"] == {"n": 2}
    assert set(Turn.objects.values_list("conversation", flat=True)) == {1, 2}


def test_the_breaker_of_a_model_sends_calls_past_it_and_closes_again(
    carrier: Carrier, stub: ModelStub, turn_time: Time
) -> None:
    stub.replies = {"a": [refuse(500)], "b": [say("b")]}
    for _ in range(5):
        ran(carrier, {"a": AGENT})
    assert Breaker.objects.get(service="one:a").state == "open"

    run = ran(carrier, {"a": AGENT})
    assert output(run)["a"] == {"text": "b"}
    assert stub.n_asked["a"] == 5, "not asked while its breaker is open"
    (passed,) = told(run, "call.passed_over")
    assert (passed["model"], passed["gate"]) == ("one:a", "service:one:a")

    stub.replies["a"] = [say("back")]
    turn_time(10)
    engine.beat_once()
    assert Breaker.objects.get(service="one:a").state == "half_open"
    for _ in range(5):
        assert output(ran(carrier, {"a": AGENT}))["a"] == {"text": "back"}
    assert Breaker.objects.get(service="one:a").state == "closed"
    assert not Breaker.objects.filter(service="two:b").exists()


def test_when_all_are_shut_the_step_waits_and_burns_no_retry(
    carrier: Carrier, stub: ModelStub, turn_time: Time
) -> None:
    stub.replies = {"a": [refuse(500)], "b": [refuse(500)]}
    first = [ran(carrier, {"a": AGENT}) for _ in range(5)]
    run = ran(carrier, {"a": AGENT})

    assert (state(run), step(run, "a").waiting_for) == ("waiting", "service")
    assert step(run, "a").n_retries == 0
    assert "one:a" in step(run, "a").why
    engine.beat_once()
    assert state(run) == "waiting", "nobody polls"

    stub.replies = {"a": [say("back")], "b": [say("b")]}
    settle_down(carrier, turn_time, by=10)
    assert {state(each) for each in (*first, run)} == {"completed"}


def test_a_held_provider_is_passed_over_and_a_held_model_too(
    carrier: Carrier, stub: ModelStub
) -> None:
    engine.hold("service", "one", **ME)
    assert output(ran(carrier, {"a": AGENT}))["a"] == {"text": "ok"}
    assert stub.n_asked == {"b": 1}

    engine.hold("model", "two:b", **ME)
    run = ran(carrier, {"a": AGENT})
    assert step(run, "a").waiting_for == "service"
    engine.release_hold("model", "two:b", **ME)
    engine.release_hold("service", "one", **ME)
    engine.beat_once()
    carrier.run_all()
    assert output(run)


def test_an_operator_lets_an_alias_lead_elsewhere_and_what_waits_goes_on(
    carrier: Carrier, stub: ModelStub
) -> None:
    engine.hold("service", "one", **ME)
    engine.hold("service", "two", **ME)
    run = ran(carrier, {"a": AGENT})
    assert state(run) == "waiting"

    engine.set_model_alias("fast", ["claude:a"], **ME)
    engine.beat_once()
    carrier.run_all()

    assert output(run)["a"] == {"text": "ok"}
    assert step(run, "a").model == "claude:a"
    (shown,) = [each for each in engine.model_aliases() if each.name == "fast"]
    assert (shown.targets, shown.from_console) == (("claude:a",), True)
    kept = ModelAlias.objects.get()
    assert (kept.actor, kept.reason) == ("user:ann", "provider outage")

    engine.set_model_alias("fast", [], **ME)
    (back,) = [each for each in engine.model_aliases() if each.name == "fast"]
    assert (back.targets, back.from_console) == (("one:a", "two:b"), False)


@pytest.mark.parametrize(
    ("name", "targets", "reason", "code"),
    [
        ("Fast", ["one:a"], "x", "bad_alias"),
        ("fast", ["nowhere:a"], "x", "unknown_model"),
        ("fast", ["deep"], "x", "unknown_model"),
        ("fast", ["one:a", "one:a"], "x", "twice"),
        ("fast", ["one:a"], " ", "bad_reason"),
        ("nobody", [], "x", "unknown_alias"),
    ],
)
def test_an_alias_that_leads_nowhere_is_refused(
    db: None, name: str, targets: list[str], reason: str, code: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        engine.set_model_alias(name, targets, reason=reason, actor="user:ann")
    assert refused.value.code == code


def test_a_price_that_nobody_knows_makes_the_cost_unknown_not_zero(
    carrier: Carrier, stub: ModelStub
) -> None:
    run = ran(carrier, {"a": {**AGENT, "model": "one:unpriced"}})

    run.refresh_from_db()
    assert (run.cost_unknown, step(run, "a").cost_microusd) == (True, None)


def test_a_call_longer_than_the_lease_keeps_it(
    carrier: Carrier, stub: ModelStub, settings: Any
) -> None:
    settings.ORCHESTRATOR = {**settings.ORCHESTRATOR, "LEASE_SECONDS": 0.5, "RENEW_SECONDS": 0.1}
    stub.replies = {"a": [Reply(text="at last", delay=1.2)]}

    run = ran(carrier, {"a": AGENT})

    assert output(run)["a"] == {"text": "at last"}
    assert (step(run, "a").attempt, step(run, "a").n_lost) == (1, 0)
    assert_replays()
