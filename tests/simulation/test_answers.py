"""What steps answer on paper: as given, worked out, assumed; refused where it cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.authoring import ToolDefinitionError, tool
from orchestrator.authoring.registry import registry
from orchestrator.core.errors import InvalidRequest
from tests.engine.carrier import Carrier
from tests.engine.runs import ran, say
from tests.engine.runs import registered as register
from tests.simulation.papers import outputs, simulated, states

pytestmark = pytest.mark.django_db

GATE = {"type": "human_gate", "assignees": ["role:finance"], "timeout": "2d"}
SIGNAL = {
    "type": "wait",
    "signal": "paid",
    "schema": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}},
    "timeout": "3d",
}
ASK = {
    "type": "router",
    "strategy": "llm",
    "model": "fast",
    "question": "which?",
    "routes": [{"id": "yes", "to": ["y"]}, {"id": "no", "to": ["n"]}],
    "default": "no",
}
CHARGE = {
    "type": "tool",
    "tool": "demo.payments.charge",
    "input": {"order_id": "A", "amount_cents": 5},
    "effect": {"key": "pay:A", "money": True},
    "compensate": {
        "tool": "demo.payments.refund",
        "input": {"external_ref": "${{ steps.charge.output.external_ref }}"},
        "effect": {"key": "refund:A"},
    },
}


def transform(value: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool", "tool": "transform", "input": {"x": value}, **more}


def test_what_touches_nothing_is_worked_out() -> None:
    found = simulated({"a": transform("${{ input.n + 1 }}")}, {"n": 1})

    assert outputs(found) == {"a": {"x": 2}}
    assert found.path[0].source == "computed"
    assert (found.assumptions, found.seconds.unknown, found.usd.unknown) == ((), (), ())


def test_what_would_be_called_is_assumed_and_said_so() -> None:
    steps = {"a": say(1), "b": transform("${{ steps.a.output.deep.down }}", needs=["a"])}
    found = simulated(steps)

    assert (found.path[0].source, found.path[0].output) == ("assumed", {"deep": {"down": ""}})
    assert found.assumptions == (("a", "it succeeds, with the least that its output may be"),)
    assert (found.state, found.seconds.unknown) == ("completed", ("a",))


def test_a_tool_with_a_known_answer_is_assumed_by_its_schema() -> None:
    found = simulated({"charge": CHARGE})

    assert set(outputs(found)["charge"]) == {
        *("external_ref", "status", "order_id", "amount_cents", "currency")
    }
    (effect,) = found.effects
    assert (effect.step, effect.key, effect.tool) == ("charge", "pay:A", "demo.payments.charge")
    assert (effect.course, effect.money, effect.undoes) == ("call", True, None)


def test_a_failure_that_is_given_is_retried_and_what_was_done_is_undone() -> None:
    steps = {"charge": CHARGE, "next": say(1, needs=["charge"])}
    answers = {
        "charge": {"output": {"external_ref": "pay_1"}, "took": "2s", "cost_usd": "0.01"},
        "next": {"error": {"class": "transient", "message": "down"}, "took": "1s"},
    }
    found = simulated(steps, answers=answers)

    assert (found.state, found.compensation) == ("failed", "full")
    assert states(found) == {
        "charge": "compensated",
        "next": "failed",
        "undo:charge": "completed",
    }
    assert [step.attempts for step in found.path] == [1, 4, 1]
    assert [(e.key, e.undoes) for e in found.effects] == [("pay:A", None), ("refund:A", "charge")]
    assert found.path[2].input == {"external_ref": "pay_1"}
    # 2 s, then four attempts of 1 s with delays of 2, 4 and 8 s, each with 1 s of jitter
    assert found.seconds.p50 == 2 + 4 + (2 + 4 + 8) + 3
    assert (found.usd.p50, found.usd.unknown) == (0.01, ())
    assert found.seconds.unknown == ("undo:charge",)


def test_answers_may_follow_one_another() -> None:
    steps = {
        "poll": {**say(1), "repeat": {"until": "output.done", "max": 5, "delay": "10s"}},
    }
    answers = {
        "poll": [
            {"error": {"class": "rate_limit"}, "took": "1s"},
            {"output": {"done": False}, "took": "1s"},
            {"output": {"done": True}, "took": "1s"},
        ]
    }
    found = simulated(steps, answers=answers)

    assert (found.state, found.path[0].attempts) == ("completed", 3)
    assert found.seconds.p50 == 3 + (2 + 1) + 10
    assert found.seconds.unknown == ()


def test_an_item_has_answers_of_its_own() -> None:
    steps = {"a": say("${{ item }}", for_each={"items": [1, 2, 3], "min_success": 2})}
    answers = {
        "a": {"output": "same"},
        "a[1]": {"error": {"class": "permanent", "message": "no"}},
    }
    found = simulated(steps, answers=answers)

    assert outputs(found)["a"] == ["same", None, "same"]
    assert states(found)["a[1]"] == "failed"


def test_the_model_is_not_asked_which_way_to_go() -> None:
    steps = {"pick": ASK, "y": transform("y"), "n": transform("n")}

    assumed = simulated(steps)
    given = simulated(steps, answers={"pick": {"routes": ["yes"]}})

    assert states(assumed) == {"pick": "completed", "y": "skipped", "n": "completed"}
    assert assumed.assumptions == (("pick", "the model chooses no, the default"),)
    assert states(given)["y"] == "completed"
    assert (assumed.usd.unknown, given.usd.unknown) == (("pick",), ("pick",))


@pytest.mark.parametrize(
    ("answer", "state", "outcome", "waited"),
    [
        ({}, "completed", "succeeded", 0),
        ({"decision": "approved", "after": "1h"}, "completed", "succeeded", 3600),
        ({"decision": "rejected", "after": "1h"}, "completed", "rejected", 3600),
        ({"never": True}, "completed", "rejected", 2 * 86_400),
        ({"decision": "approved", "after": "3d"}, "completed", "rejected", 2 * 86_400),
    ],
)
def test_a_gate_is_decided_as_given_or_by_the_clock(
    answer: dict[str, Any], state: str, outcome: str, waited: float
) -> None:
    steps = {"ok": {**GATE, "on_reject": "end", "message": "May ${{ input.who }}?"}}
    steps["after"] = transform(1, needs=["ok"])
    found = simulated(steps, {"who": "Ann"}, {"ok": answer} if answer else {})

    assert (found.state, found.outcome, found.waiting_s.p50) == (state, outcome, waited)
    (asked,) = found.approvals
    assert asked.asked["assignees"] == ["role:finance"]
    assert (asked.asked["message"], asked.asked["timeout_s"]) == ("May Ann?", 2 * 86_400)
    assert asked.source == ("given" if waited == 3600 else "computed" if waited else "assumed")


def test_a_gate_that_escalates_is_asked_again_until_it_is_decided() -> None:
    steps = {"ok": {**GATE, "on_timeout": "escalate"}}
    found = simulated(steps, answers={"ok": {"decision": "approved", "after": "5d"}}, timeout="30d")

    assert (found.state, found.waiting_s.p50) == ("completed", 5 * 86_400)


def test_a_signal_comes_as_given_or_not_at_all() -> None:
    steps = {"paid": SIGNAL, "z": transform("${{ steps.paid.output.n }}", needs=["paid"])}

    given = simulated(steps, answers={"paid": {"payload": {"n": 7}, "after": "1d"}})
    assumed = simulated(steps)
    never = simulated(
        {"paid": {**SIGNAL, "retry": {"max_retries": 0}}}, answers={"paid": {"never": True}}
    )

    assert (given.output, given.waiting_s.p50) == ({"z": {"x": 7}}, 86_400)
    assert assumed.output == {"z": {"x": 0}}
    assert assumed.waiting_s.unknown == ("paid",)
    assert (never.state, never.error["class"]) == ("failed", "timeout")


def test_a_body_that_takes_too_long_times_out() -> None:
    steps = {"a": {**say(1), "timeout": "10s", "retry": {"max_retries": 0}}}
    found = simulated(steps, answers={"a": {"output": 1, "took": "11s"}})

    assert (found.state, states(found), found.seconds.p50) == ("failed", {"a": "timed_out"}, 10)


def test_an_output_that_breaks_its_schema_fails_as_it_would() -> None:
    steps = {"a": {**say(1), "output_schema": {"type": "integer"}}}
    found = simulated(steps, answers={"a": {"output": "text"}})

    assert (found.state, found.error["class"]) == ("failed", "schema_error")


def test_a_key_that_is_taken_is_not_called_again(carrier: Carrier) -> None:
    effect = {**say("first"), "effect": {"key": "one"}}
    ran(carrier, {"a": effect})

    found = simulated(
        {"b": effect, "c": {**say("other"), "effect": {"key": "one"}, "needs": ["b"]}}
    )

    assert [(e.step, e.course) for e in found.effects] == [("b", "found"), ("c", "clash")]
    assert (found.path[0].source, found.path[0].output) == ("receipt", "first")
    assert found.state == "failed"


def test_one_key_for_all_items_is_called_once() -> None:
    steps = {
        "a": {**say("same"), "effect": {"key": "one"}, "for_each": {"items": [1, 2, 3]}},
    }
    found = simulated(steps)

    assert [effect.course for effect in found.effects] == ["call", "found", "found"]


def test_the_steps_of_a_child_have_answers_too() -> None:
    child = register({"ask": GATE}, name="child")
    call = {"type": "sub_workflow", "workflow": "child"}
    answers = {"call/ask": {"decision": "rejected", "after": "1h"}}
    found = simulated({"call": call}, answers=answers, pins={"child": child.digest})

    assert (found.state, found.error["class"]) == ("failed", "child_failed")
    assert [(a.step, a.decision) for a in found.approvals] == [("call/ask", "rejected")]
    wrong = {"call/ask": {"decision": "maybe"}}
    with pytest.raises(InvalidRequest) as refused:
        simulated({"call": call}, answers=wrong, pins={"child": child.digest})
    assert refused.value.problems[0]["pointer"] == "/answers/call~1ask/decision"


def test_a_workflow_without_an_end_is_bounded() -> None:
    steps = {"a": say(1, for_each={"items": "${{ input.xs }}"})}
    with pytest.raises(InvalidRequest, match="more than 10 answers") as refused:
        simulated(steps, {"xs": list(range(20))}, max_answers=10)
    assert refused.value.code == "simulation_too_long"


@pytest.mark.parametrize(
    ("answers", "pointer", "code"),
    [
        ([], "/answers", "wrong_type"),
        ({"zz": {}}, "/answers/zz", "unknown_step"),
        ({"say[0]": {}}, "/answers/say[0]", "unknown_step"),
        ({"say/x": {}}, "/answers/say~1x", "unknown_step"),
        ({"say": []}, "/answers/say", "empty"),
        ({"say": [{"output": 1}, {"outputs": 2}]}, "/answers/say/1/outputs", "extra_forbidden"),
        ({"say": {"decision": "approved"}}, "/answers/say/decision", "field_not_taken"),
        ({"say": {"error": {"class": "bad"}}}, "/answers/say/error/class", "enum"),
        (
            {"say": {"output": 1, "error": {"class": "permanent"}}},
            "/answers/say/error",
            "many_ends",
        ),
        ({"ok": {"data": {"n": "x"}}}, "/answers/ok/data/n", "schema"),
        ({"pick": {"routes": ["maybe"]}}, "/answers/pick/routes/0", "unknown_route"),
        ({"paid": {"payload": {}}}, "/answers/paid/payload", "schema"),
        ({"nap": {"payload": 1}}, "/answers/nap/payload", "field_not_taken"),
        ({"say": {"took": "soon"}}, "/answers/say/took", "bad_duration"),
    ],
)
def test_answers_that_cannot_be_are_refused_with_a_pointer(
    answers: Any, pointer: str, code: str
) -> None:
    form = {"type": "object", "properties": {"n": {"type": "integer"}}}
    steps = {
        "say": say(1),
        "ok": {**GATE, "form": form},
        "pick": ASK,
        "paid": SIGNAL,
        "nap": {"type": "wait", "for": "1s"},
        "y": transform(1),
        "n": transform(1),
    }
    with pytest.raises(InvalidRequest) as refused:
        simulated(steps, answers=answers)
    assert refused.value.code == "invalid_answers"
    assert [(p["pointer"], p["code"]) for p in refused.value.problems] == [(pointer, code)]


def test_a_pure_tool_has_no_effect() -> None:
    with pytest.raises(ToolDefinitionError, match="is pure and has an effect"):

        @tool("probe.impure", pure=True, effect="required")
        def act() -> None:
            """Never called."""

    assert "probe.impure" not in registry


DOWN = {"error": {"class": "transient", "message": "no answer"}, "took": "1s"}


def test_an_effect_that_nobody_can_tell_of_waits_for_a_person() -> None:
    steps = {"a": {**say(1), "effect": {"key": "one"}}}
    found = simulated(steps, answers={"a": DOWN})
    refused = simulated(steps, answers={"a": {"error": {**DOWN["error"], "not_applied": True}}})

    assert (found.state, found.waiting_for) == ("waiting", "review")
    assert (refused.state, refused.path[0].attempts) == ("failed", 4)


def test_an_effect_may_be_sent_again_or_given_up_as_the_document_says() -> None:
    effect = {"key": "one", "on_doubt": "resend"}
    again = simulated({"a": {**say(1), "effect": effect}}, answers={"a": [DOWN, {"output": 1}]})
    skip = {**say(1), "effect": {**effect, "on_doubt": "skip"}}
    skipped = simulated({"a": skip}, answers={"a": DOWN})

    assert (again.state, again.path[0].attempts) == ("completed", 2)
    assert (skipped.state, skipped.output) == ("completed", {"a": None})
    assert "nobody can tell" in skipped.warnings[0]["error"]["message"]


def test_what_must_be_known_is_not_given_up_in_doubt() -> None:
    found = simulated({"charge": CHARGE}, answers={"charge": DOWN})

    assert (found.state, found.waiting_for) == ("waiting", "review")
    assert found.path[0].attempts == 4


def test_each_round_may_have_an_effect_of_its_own() -> None:
    key = "${{ previous == null ? 'first' : 'next' }}"
    step = {**say(1), "effect": {"key": key}, "repeat": {"until": "output == 2", "max": 3}}
    found = simulated({"a": step}, answers={"a": [{"output": 1}, {"output": 2}]})

    assert [effect.key for effect in found.effects] == ["first", "next"]
