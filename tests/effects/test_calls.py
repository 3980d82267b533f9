"""Tools that call tools: each call is an effect, and only what is missing is called again."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from orchestrator import engine
from orchestrator.authoring import EffectInDoubt, Permanent, ToolContext, Transient, tool
from orchestrator.core.outcomes import Failed, Succeeded
from orchestrator.engine.calls import Caller, call_tool
from orchestrator.engine.replaying import replay_run
from orchestrator.executors.base import ToolRequest
from orchestrator.models import Effect, Event
from orchestrator.models.call_rows import Holder
from tests.effects.forked import die, dies
from tests.engine import probes
from tests.engine.carrier import Always, Carrier
from tests.engine.runs import (
    error,
    hook,
    kill,
    lose,
    output,
    ran,
    started,
    state,
    step,
)
from tests.executors.builders import step_context


@tool("calls_test.pay", effect="required")
def pay(ctx: ToolContext, cents: int) -> dict[str, Any]:
    probes.calls[f"pay {ctx.idempotency_key}"] += 1
    found = probes.hooks.get("pay", lambda _: None)(ctx)
    return found or {"external_ref": f"ref {ctx.idempotency_key}", "cents": cents}


def _find(ctx: ToolContext, cents: int) -> dict[str, Any] | None:
    probes.calls["looked up"] += 1
    return {"external_ref": "found"} if probes.calls["asked"] else None


@tool("calls_test.ask", effect="required", reconcile=_find)
def ask(ctx: ToolContext, cents: int) -> dict[str, Any]:
    probes.calls["asked"] += 1
    probes.hooks["ask"](ctx)
    return {"external_ref": "asked"}


@tool("calls_test.recurse")
def recurse(ctx: ToolContext) -> Any:
    return ctx.call_tool("calls_test.recurse", {})


def both(ctx: ToolContext) -> list[Any]:
    """What most bodies here do: two payments, one after the other."""
    return [
        ctx.call_tool("calls_test.pay", {"cents": n}, f"pay:{n}")["external_ref"] for n in (1, 2)
    ]


def run_with(carrier: Carrier, body: Any, **more: Any) -> Any:
    probes.hooks["body"] = body
    return ran(carrier, {"a": hook("body", **more)})


def sound(run: Any) -> None:
    """The history can be decided anew, line by line."""
    run_id = getattr(run, "pk", run)
    replayed = replay_run(run_id)
    assert replayed is not None
    assert replayed.identical, replayed.difference or replayed.unread


def test_calls_have_intents_and_receipts_of_their_own(carrier: Carrier) -> None:
    run = run_with(carrier, both)

    assert output(run) == {"a": ["ref pay:1", "ref pay:2"]}
    kept = Effect.objects.order_by("idempotency_key")
    assert [(e.idempotency_key, e.status, e.nested, e.external_ref) for e in kept] == [
        ("pay:1", "applied", True, "ref pay:1"),
        ("pay:2", "applied", True, "ref pay:2"),
    ]
    lines = Event.objects.filter(run_id=run.pk, type__startswith="call.").order_by("seq")
    assert [line.type for line in lines] == ["call.intended", "call.receipt"] * 2
    assert lines[0].payload == {
        "step": "a",
        "key": "pay:1",
        "tool": "calls_test.pay",
        "again": False,
    }
    sound(run)


def test_after_a_failure_only_what_is_missing_is_called(carrier: Carrier, turn_time: Any) -> None:
    def body(ctx: ToolContext) -> Any:
        done = both(ctx)
        if ctx.attempt == 1:
            raise Transient("between the calls and the end")
        return done

    run = run_with(carrier, body)
    turn_time(10)
    engine.beat_once()
    carrier.run_all()

    assert output(run)["a"] == ["ref pay:1", "ref pay:2"]
    assert {k: n for k, n in probes.calls.items() if k.startswith("pay")} == {
        "pay pay:1": 1,
        "pay pay:2": 1,
    }
    sound(run)


def test_a_worker_that_dies_between_two_calls_makes_the_second_only(carrier: Carrier) -> None:
    def body(ctx: ToolContext) -> Any:
        first = ctx.call_tool("calls_test.pay", {"cents": 1}, "pay:1")
        if ctx.attempt == 1:
            die()
        return [first, ctx.call_tool("calls_test.pay", {"cents": 2}, "pay:2")]

    probes.hooks["body"] = body
    run_id = started({"a": hook("body")})
    carrier.messages.clear()
    dies(lambda: engine.run_step(engine.Order(run_id=run_id, key="a"), Always()))
    assert Effect.objects.get().status == "applied"

    lose(run_id, "a")
    engine.beat_once()
    carrier.run_all()

    assert [each["external_ref"] for each in output(run_id)["a"]] == ["ref pay:1", "ref pay:2"]
    assert probes.calls["pay pay:1"] == 0, "here, in the second worker"
    assert probes.calls["pay pay:2"] == 1
    sound(run_id)


@pytest.mark.parametrize("applied", [True, False])
def test_a_call_that_died_is_settled_by_a_person_and_the_body_goes_on(
    carrier: Carrier, applied: bool
) -> None:
    probes.hooks["pay"] = probes.die
    probes.hooks["body"] = both
    run_id = started({"a": hook("body")})
    kill(carrier)
    lose(run_id, "a")
    engine.beat_once()
    carrier.run_all()
    del probes.hooks["pay"]

    assert (state(run_id), step(run_id, "a").waiting_for) == ("waiting", "review")
    assert "pay:1" in step(run_id, "a").why
    assert probes.calls["pay pay:1"] == 1, "no blind second call"
    details: dict[str, Any] = {"effect_key": "pay:1", "outcome": "not_applied"}
    if applied:
        details |= {"outcome": "applied", "external_ref": "R-1"}
    engine.repair_run(
        run_id, action="settle_effect", step="", details=details, token="t",
        actor="user:op", role="operator", reason="looked it up",
    )  # fmt: skip
    carrier.run_all()

    assert output(run_id)["a"] == ["R-1" if applied else "ref pay:1", "ref pay:2"]
    assert probes.calls["pay pay:1"] == (1 if applied else 2)
    sound(run_id)


def test_what_a_call_answered_need_not_look_like_the_answer_of_its_step(carrier: Carrier) -> None:
    probes.hooks["pay"] = lambda ctx: (_ for _ in ()).throw(ConnectionError("cut"))
    run = run_with(carrier, both, output_schema={"type": "array"})
    assert state(run) == "waiting"
    del probes.hooks["pay"]

    engine.repair_run(
        run.pk, action="settle_effect", token="t", actor="user:op", reason="looked it up",
        details={"effect_key": "pay:1", "outcome": "applied", "external_ref": "R-1"},
    )  # fmt: skip
    carrier.run_all()

    assert output(run)["a"] == ["R-1", "ref pay:2"]


def test_a_call_that_can_be_looked_up_is(carrier: Carrier) -> None:
    probes.hooks["ask"] = probes.die
    probes.hooks["body"] = lambda ctx: ctx.call_tool("calls_test.ask", {"cents": 1}, "ask:1")
    run_id = started({"a": hook("body")})
    kill(carrier)
    lose(run_id, "a")
    engine.beat_once()
    carrier.run_all()

    assert output(run_id)["a"] == {"external_ref": "found"}
    assert (probes.calls["asked"], probes.calls["looked up"]) == (1, 1)


def test_a_doubt_cannot_be_swallowed_by_the_body(carrier: Carrier) -> None:
    def body(ctx: ToolContext) -> str:
        try:
            ctx.call_tool("calls_test.pay", {"cents": 1}, "pay:1")
        except EffectInDoubt:
            return "as if nothing had been"
        return "paid"

    probes.hooks["pay"] = lambda ctx: (_ for _ in ()).throw(ConnectionError("cut"))
    run = run_with(carrier, body)

    assert (state(run), step(run, "a").waiting_for) == ("waiting", "review")
    assert Effect.objects.get().status == "in_doubt"


def test_what_a_call_raises_is_what_its_tool_meant(carrier: Carrier) -> None:
    probes.hooks["pay"] = lambda ctx: (_ for _ in ()).throw(Permanent("declined"))
    run = run_with(carrier, both)

    assert (error(run)["class"], error(run)["message"]) == ("permanent", "declined")
    assert Effect.objects.get().status == "not_applied"


def test_a_call_and_a_step_share_one_receipt(carrier: Carrier) -> None:
    run_with(carrier, both)
    own = {"type": "tool", "tool": "calls_test.pay", "effect": {"key": "pay:1"}}

    second = ran(carrier, {"b": {**own, "input": {"cents": 1}}})
    third = ran(carrier, {"b": {**own, "input": {"cents": 7}}})

    assert output(second)["b"]["external_ref"] == "ref pay:1"
    assert probes.calls["pay pay:1"] == 1
    assert step(third, "b").error["details"]["code"] == "effect_key_reused"


def test_a_call_without_a_key_has_no_effect_and_one_that_needs_it_is_refused(
    carrier: Carrier,
) -> None:
    plain = run_with(carrier, lambda ctx: ctx.call_tool("probe.say", {"value": 5}))
    refused = run_with(carrier, lambda ctx: ctx.call_tool("calls_test.pay", {"cents": 5}))

    assert output(plain)["a"] == 5
    assert "needs an effect key" in error(refused)["message"]
    assert not Effect.objects.exists()


def test_tools_do_not_call_one_another_without_end(carrier: Carrier) -> None:
    run = ran(carrier, {"a": {"type": "tool", "tool": "calls_test.recurse", "input": {}}})

    assert "more than 4 deep" in error(run)["message"]


def test_an_agent_calls_only_what_its_step_lists(db: None) -> None:
    holder = Holder(run_id=uuid4(), step_id=uuid4(), fence=1)
    caller = Caller(holder=holder, name="a")
    agent = step_context({"type": "agent", "tools": ["probe.say"]})

    said = call_tool(caller, agent, ToolRequest(tool="probe.say", input={"value": 1}))
    refused = call_tool(caller, agent, ToolRequest(tool="probe.fail", input={}))

    assert said == Succeeded(output=1)
    assert isinstance(refused, Failed)
    assert "may not call probe.fail" in refused.error.message


def test_a_body_that_lost_its_step_calls_nobody(carrier: Carrier) -> None:
    def body(ctx: ToolContext) -> Any:
        if ctx.attempt == 1:
            lose(ctx.run_id, "a")
            engine.beat_once()
        return both(ctx)

    run = run_with(carrier, body)

    assert output(run)["a"] == ["ref pay:1", "ref pay:2"]
    assert (probes.calls["pay pay:1"], probes.calls["pay pay:2"]) == (1, 1)
