from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.validation import check_document
from tests.core.documents import (
    ORDER_PAYMENT,
    Installation,
    document,
    found,
    problems,
    problems_of,
)
from tests.core.test_source import VALUES

AGENT = {"type": "agent", "model": "fast", "prompt": "hello"}
GATE = {"type": "human_gate", "assignees": ["role:finance"]}
CHARGE = {
    "type": "tool",
    "tool": "demo.payments.charge",
    "input": {"order_id": "a", "amount_cents": 1},
    "effect": {"key": "pay:${{ run.id }}"},
}
EACH_SAME = {"key": "back:${{ run.id }}"}
ROUTES = [{"id": "x", "to": ["a"], "when": "true"}, {"id": "y", "to": ["b"]}]
ROUTER = {"type": "router", "routes": ROUTES, "default": "y"}


def errors(steps: dict[str, Any], **more: Any) -> set[tuple[str, str]]:
    return found(document(steps, **more))


def warnings(steps: dict[str, Any], **more: Any) -> set[tuple[str, str]]:
    return found(document(steps, **more), severity="warning")


def test_the_document_of_the_contract_has_no_error() -> None:
    assert [p for p in problems_of(ORDER_PAYMENT) if p.severity == "error"] == []


def test_every_problem_has_its_line_and_says_how_to_mend_it() -> None:
    found_here = problems_of(
        "schema: orchestrator/v1\nname: x\ntitel: y\nsteps:\n"
        "  a: {type: tool, tool: noop, needs: [b]}\n"
        "  b:\n    type: tool\n    tool: noop\n    needs:\n      - a\n      - nobody\n"
        "  c: {type: tool, tool: nop}\n"
    )
    assert [(p.code, p.pointer, p.line) for p in found_here] == [
        ("unknown_key", "/titel", 3),
        ("cycle", "/steps/a/needs", 5),
        ("dangling_need", "/steps/b/needs/1", 11),
        ("unknown_tool", "/steps/c/tool", 12),
    ]
    assert "a → b → a" in found_here[1].message
    assert 'did you mean "noop"?' in found_here[3].message
    assert found_here[0].as_json() == {
        "severity": "error",
        "code": "unknown_key",
        "pointer": "/titel",
        "line": 3,
        "message": 'unknown key "titel": did you mean "title"?',
    }


# -- the graph ---------------------------------------------------------------------------------


def test_a_cycle_is_one_problem_and_what_is_behind_it_is_unreachable() -> None:
    steps = {"a": {"needs": ["c"]}, "b": {"needs": ["a"]}, "c": {"needs": ["b"]}}
    assert errors(steps) == {("cycle", "/steps/a/needs")}
    assert errors({**steps, "d": {"needs": ["c"]}}) == {
        ("cycle", "/steps/a/needs"),
        ("unreachable", "/steps/d"),
    }
    assert errors({"a": {"needs": ["a"]}}) == {("cycle", "/steps/a/needs")}


def test_a_cycle_through_a_route_or_a_fallback_is_found() -> None:
    routes = [{"id": "x", "to": ["a"]}]
    router = {"type": "router", "routes": routes, "default": "x", "needs": ["a"]}
    assert ("cycle", "/steps/r/needs") in errors({"r": router, "a": {}})
    assert ("cycle", "/steps/a/needs") in errors({"a": {"fallback": "b"}, "b": {"fallback": "a"}})


def test_edges_to_nowhere_are_found_wherever_they_stand() -> None:
    routes = [{"id": "x", "to": ["a", "nobody"]}]
    steps = {
        "a": {"fallback": "none"},
        "b": {"needs": [{"step": "nil", "on": "any"}]},
        "r": {"type": "router", "routes": routes, "default": "x"},
    }
    assert errors(steps) == {
        ("dangling_fallback", "/steps/a/fallback"),
        ("dangling_need", "/steps/b/needs/0"),
        ("unreachable", "/steps/b"),
        ("dangling_route", "/steps/r/routes/0/to/1"),
    }


def test_a_step_that_can_never_start_is_unreachable() -> None:
    steps = {
        "root": {},
        "never": {"needs": [{"step": "root", "on": "skipped"}]},
        "after": {"needs": ["never"]},
    }

    assert errors(steps) == {("unreachable", "/steps/never"), ("unreachable", "/steps/after")}


@pytest.mark.parametrize(
    ("step", "warned"),
    [
        ({"when": "false"}, ("never_true", "/steps/never")),
        ({"needs": [{"step": "root", "when": "false"}]}, ("never_true", "/steps/never")),
        ({"needs": ["a", "b"], "join": "strict"}, ("join_unmet", "/steps/never/join")),
        ({"needs": ["a", "b"], "join": {"at_least": 2}}, ("join_unmet", "/steps/never/join")),
    ],
)
def test_a_step_that_is_always_skipped_is_worth_a_warning(
    step: dict[str, Any], warned: tuple[str, str]
) -> None:
    steps = {"root": {}, "r": ROUTER, "a": {}, "b": {}, "never": step}

    assert errors(steps) == set()
    assert warned in warnings(steps)


@pytest.mark.parametrize(
    "step",
    [
        {"when": "true"},
        {"needs": ["a", "b"]},
        {"needs": ["a", "b"], "join": "any"},
        {"needs": ["a", "root"], "join": "strict"},
        {"needs": [{"step": "a", "on": "skipped"}]},
        {"needs": [{"step": "root", "on": "failed"}]},
    ],
)
def test_a_step_that_may_start_is_left_alone(step: dict[str, Any]) -> None:
    assert errors({"root": {}, "r": ROUTER, "a": {}, "b": {}, "maybe": step}) == set()


def test_a_join_may_not_ask_for_more_than_there_is() -> None:
    steps = {"a": {}, "b": {}, "c": {"needs": ["a", "b"], "join": {"at_least": 3}}}
    assert errors(steps) == {("join_too_large", "/steps/c/join/at_least")}


def test_a_need_stands_once() -> None:
    assert errors({"a": {}, "b": {"needs": ["a", "a"]}}) == {("duplicate_need", "/steps/b/needs/1")}
    both = ["a", {"step": "a", "on": "failed"}]
    assert errors({"a": {}, "b": {"needs": both}}) == set()


def test_a_fallback_has_one_owner_and_no_needs() -> None:
    assert errors({"a": {"fallback": "f"}, "f": {}}) == set()
    assert errors({"a": {"fallback": "f"}, "b": {"fallback": "f"}, "f": {}}) == {
        ("shared_fallback", "/steps/a/fallback"),
        ("shared_fallback", "/steps/b/fallback"),
    }
    assert errors({"a": {"fallback": "f"}, "b": {}, "f": {"needs": ["b"]}}) == {
        ("fallback_with_needs", "/steps/a/fallback")
    }


# -- step kinds --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        ({**AGENT, "model": "fats"}, ("unknown_model", "/steps/s/model")),
        ({**AGENT, "tools": ["noop", "x"]}, ("unknown_tool", "/steps/s/tools/1")),
        ({**GATE, "assignees": []}, ("gate_without_assignee", "/steps/s/assignees")),
        ({**GATE, "assignees": ["role:king"]}, ("unknown_role", "/steps/s/assignees/0")),
        ({**GATE, "assignees": ["anna"]}, ("bad_assignee", "/steps/s/assignees/0")),
        ({**GATE, "on_timeout": "escalate"}, ("escalate_to_nobody", "/steps/s/escalate")),
        (
            {**GATE, "escalate": [{"after": "4h", "to": ["role:king"]}]},
            ("unknown_role", "/steps/s/escalate/0/to/0"),
        ),
        ({"type": "wait"}, ("bad_wait", "/steps/s")),
        ({"type": "wait", "for": "1m", "signal": "x"}, ("bad_wait", "/steps/s")),
        (
            {"type": "sub_workflow", "workflow": "chidl"},
            ("unknown_workflow", "/steps/s/workflow"),
        ),
        (
            {"type": "sub_workflow", "workflow": "child@2"},
            ("unknown_version", "/steps/s/workflow"),
        ),
        ({"queue": "fast"}, ("unknown_queue", "/steps/s/queue")),
        ({"service": "a\x01b"}, ("bad_name", "/steps/s/service")),
        ({"service": "x" * 256}, ("bad_value", "/steps/s/service")),
        (
            {"effect": {"key": "k"}, "compensate": {"tool": "noop", "effect": {"key": "k"}}},
            ("same_key_to_undo", "/steps/s/compensate/effect/key"),
        ),
        ({"for_each": {"items": "abc"}}, ("not_a_list", "/steps/s/for_each/items")),
        ({"for_each": {"items": 3}}, ("not_a_list", "/steps/s/for_each/items")),
        (
            {"for_each": {"items": [1], "min_success": 2}},
            ("min_success_too_large", "/steps/s/for_each/min_success"),
        ),
        (
            {"for_each": {"items": [1], "as": "steps"}},
            ("bad_item_name", "/steps/s/for_each/as"),
        ),
        ({"repeat": {"until": "true"}}, ("loop_without_bound", "/steps/s/repeat/max")),
        ({"repeat": {"until": "true", "max": 1001}}, ("out_of_range", "/steps/s/repeat/max")),
        ({"output_schema": {"type": "txt"}}, ("bad_schema", "/steps/s/output_schema/type")),
        (
            {"input_schema": {"$ref": "https://example.org/x"}},
            ("bad_schema", "/steps/s/input_schema/$ref"),
        ),
    ],
)
def test_each_kind_of_step_says_what_it_lacks(
    step: dict[str, Any], problem: tuple[str, str]
) -> None:
    assert errors({"s": step}) == {problem}


@pytest.mark.parametrize(
    ("given", "header"),
    [
        ({"headers": {"Idempotency-Key": "x"}}, "Idempotency-Key"),
        ({"headers": {"idempotency-key": "${{ input.x }}"}}, "idempotency-key"),
        ({"headers": {"X-Id": "x"}, "key_header": "x-id"}, "X-Id"),
        ({"headers": {"Idempotency-Key": "x"}, "key_header": "X-Id"}, None),
        ({"headers": {"Accept": "x"}}, None),
        ({"headers": "${{ input.headers }}"}, None),
    ],
)
def test_the_header_of_the_effects_key_is_not_the_documents_to_set(
    given: dict[str, Any], header: str | None
) -> None:
    step = {"type": "tool", "tool": "web", "input": given, "effect": {"key": "${{ run.id }}"}}
    undo = {"tool": "web", "input": given, "effect": {"key": "undo:${{ run.id }}"}}

    places = {f"/steps/s/input/headers/{header}", f"/steps/s/compensate/input/headers/{header}"}
    wanted = {("key_header_taken", place) for place in places} if header else set()
    assert errors({"s": step | {"compensate": undo}}) == wanted
    assert errors({"s": {k: v for k, v in step.items() if k != "effect"}}) == set()


def test_one_signal_has_one_schema() -> None:
    wait = {"type": "wait", "signal": "paid"}
    amount, code = {"required": ["amount"]}, {"required": ["code"]}

    differ = {"a": {**wait, "schema": amount}, "b": wait, "c": {**wait, "schema": code}}
    assert errors(differ) == {("signal_schema_differs", "/steps/c/schema")}
    same = {"a": {**wait, "schema": amount}, "b": wait, "c": {**wait, "schema": dict(amount)}}
    assert errors(same) == set()


def test_a_workflow_may_name_itself_as_a_child() -> None:
    assert errors({"s": {"type": "sub_workflow", "workflow": "example"}}) == set()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"default": None}, ("router_without_default", "/steps/r/default")),
        ({"default": "z"}, ("unknown_route", "/steps/r/default")),
        ({"default": "x"}, ("route_without_rule", "/steps/r/routes/1/when")),
        ({"routes": [ROUTES[1], ROUTES[1]]}, ("duplicate_route", "/steps/r/routes/1/id")),
        ({"strategy": "score"}, ("missing_key", "/steps/r/value")),
        ({"strategy": "llm", "model": "fast"}, ("missing_key", "/steps/r/question")),
        ({"strategy": "llm", "question": "?"}, ("missing_key", "/steps/r/model")),
    ],
)
def test_a_router_must_be_able_to_decide(change: dict[str, Any], problem: tuple[str, str]) -> None:
    router = {key: value for key, value in {**ROUTER, **change}.items() if value is not None}
    assert problem in errors({"r": router, "a": {}, "b": {}})


# -- effects and money -------------------------------------------------------------------------


def test_an_effect_needs_a_key_where_the_tool_says_so() -> None:
    bare = {key: value for key, value in CHARGE.items() if key != "effect"}
    assert errors({"s": bare}) == {("effect_without_key", "/steps/s/effect")}
    undo = {"tool": "demo.payments.refund", "input": {"external_ref": "x"}}
    assert errors({"s": {**CHARGE, "compensate": undo}}) == {
        ("effect_without_key", "/steps/s/compensate/effect")
    }


@pytest.mark.parametrize("on_doubt", ["resend", "skip"])
def test_money_and_what_cannot_be_undone_are_never_sent_again_blindly(on_doubt: str) -> None:
    effect = {"key": "k:${{ run.id }}", "on_doubt": on_doubt}
    wrong = {("unsafe_on_doubt", "/steps/s/effect/on_doubt")}
    assert errors({"s": {**CHARGE, "effect": {**effect, "money": True}}}) == wrong
    assert errors({"s": {**CHARGE, "effect": effect, "irreversible": True}}) == wrong
    assert errors({"s": {**CHARGE, "effect": effect}}) == set()


@pytest.mark.parametrize("grave", [{"irreversible": True}, {"effect": {"key": "k", "money": True}}])
def test_silence_may_not_approve_what_is_grave(grave: dict[str, Any]) -> None:
    gate = {**GATE, "on_timeout": "approve"}
    behind = {"gate": gate, "a": {"needs": ["gate"], "fallback": "f"}, "f": grave}
    assert errors(behind) == {("approve_without_person", "/steps/gate/on_timeout")}
    assert errors({"gate": {**gate, "needs": ["f"]}, "f": grave}) == set()


def test_a_budget_must_hold_its_largest_step() -> None:
    steps = {"a": {**AGENT, "cost_limit_usd": "0.50"}}
    assert errors(steps, budget={"cost_usd": 0.4}) == {("budget_too_small", "/budget/cost_usd")}
    assert errors(steps, budget={"cost_usd": 0.5}) == set()


# -- expressions -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "code", "pointer"),
    [
        ({"when": "1 +"}, "expression_syntax", "/when"),
        ({"when": "${{ true }}"}, "expression_syntax", "/when"),
        ({"when": "foo"}, "expression_unknown_name", "/when"),
        ({"when": "item == 1"}, "expression_unknown_name", "/when"),
        ({"when": "output == 1"}, "expression_unknown_name", "/when"),
        ({"input": {"a": ["${{ previous }}"]}}, "expression_unknown_name", "/input/a/0"),
        ({"input": {"a": "${{ nope("}}, "expression_unclosed", "/input/a"),
        ({"input": {"${{ x }}": 1}}, "expression_template_in_key", "/input/${{ x }}"),
        ({"input": "${{ steps.zz.output }}"}, "unknown_step", "/input"),
        ({"input": "${{ steps.root.result }}"}, "unknown_property", "/input"),
        ({"input": "${{ run.name }}"}, "unknown_property", "/input"),
        ({"input": "${{ steps.other.output }}"}, "not_upstream", "/input"),
        ({"input": "${{ steps.s.output }}"}, "not_upstream", "/input"),
        ({"effect": {"key": "${{ index }}"}}, "expression_unknown_name", "/effect/key"),
        ({"merge": {"expression": "a.b"}}, "expression_unknown_name", "/merge/expression"),
        ({"for_each": {"items": "${{ item }}"}}, "expression_unknown_name", "/for_each/items"),
        ({"repeat": {"until": "item", "max": 2}}, "expression_unknown_name", "/repeat/until"),
        (
            {"compensate": {"tool": "noop", "input": "${{ steps.other.output }}"}},
            "not_upstream",
            "/compensate/input",
        ),
        ({**AGENT, "prompt": "${{ x }}"}, "expression_unknown_name", "/prompt"),
        ({**GATE, "message": "${{ x }}"}, "expression_unknown_name", "/message"),
        ({**GATE, "assignees": ["${{ x }}"]}, "expression_unknown_name", "/assignees/0"),
        ({"type": "wait", "until": "${{ x }}"}, "expression_unknown_name", "/until"),
    ],
)
def test_an_expression_may_name_only_what_it_can_see(
    step: dict[str, Any], code: str, pointer: str
) -> None:
    steps = {"root": {}, "other": {}, "s": {"needs": ["root"], **step}}
    assert errors(steps) == {(code, f"/steps/s{pointer}")}


@pytest.mark.parametrize(
    "step",
    [
        {"when": "steps.root.output.x == 1 && run.id != '' && trigger == null"},
        {"needs": [{"step": "root", "when": "output.x == 1"}]},
        {"for_each": {"items": "${{ input.l }}"}, "input": "${{ item }} ${{ index }}"},
        {"for_each": {"items": [1], "as": "one"}, "input": "${{ one }}"},
        {"repeat": {"until": "output.x && previous == null", "max": 2}, "input": "${{ previous }}"},
        {"compensate": {"tool": "noop", "input": "${{ steps.s.output }}"}},
        {"input": "${{ steps.before.output }}"},
    ],
)
def test_what_can_be_seen_may_be_named(step: dict[str, Any]) -> None:
    steps = {"before": {}, "root": {"needs": ["before"]}, "s": {"needs": ["root"], **step}}
    assert errors(steps, output="${{ steps.s.output }}") == set()


def test_a_fallback_sees_what_its_owner_sees_and_what_follows_sees_the_fallback() -> None:
    steps = {
        "first": {},
        "a": {"needs": ["first"], "fallback": "f"},
        "f": {"input": "${{ steps.first.output }} ${{ steps.a.state }}"},
        "last": {"needs": ["a"], "input": "${{ steps.f.state }}"},
    }
    assert errors(steps) == set()


def test_a_step_elsewhere_may_be_named_when_it_is_tested() -> None:
    steps = {"a": {}, "b": {"when": "has(steps.a.output) && steps.a.output == 1"}}
    assert errors(steps) == set()
    assert warnings(steps) == {("not_upstream", "/steps/b/when")}


# -- types -------------------------------------------------------------------------------------

INPUT = {
    "type": "object",
    "required": ["id", "cents"],
    "properties": {
        "id": {"type": "string"},
        "cents": {"$ref": "#/$defs/cents"},
        "mail": {"type": "string"},
        "lines": {"type": "array", "items": {"type": "object", "properties": {"n": {}}}},
    },
    "$defs": {"cents": {"type": "integer"}},
    "additionalProperties": False,
}


def call(**arguments: Any) -> dict[str, Any]:
    return {"s": {**CHARGE, "input": {"order_id": "a", "amount_cents": 1, **arguments}}}


@pytest.mark.parametrize(
    ("arguments", "code", "pointer"),
    [
        ({"order_id": 5}, "type_mismatch", "/order_id"),
        ({"amount_cents": "5"}, "type_mismatch", "/amount_cents"),
        ({"amount_cents": 1.5}, "type_mismatch", "/amount_cents"),
        ({"amount_cents": "${{ input.id }}"}, "type_mismatch", "/amount_cents"),
        ({"amount_cents": "${{ input.cents }}!"}, "type_mismatch", "/amount_cents"),
        ({"order_id": "${{ input.cents }}"}, "type_mismatch", "/order_id"),
        ({"order_id": ["${{ input.id }}"]}, "type_mismatch", "/order_id"),
        ({"order_id": "${{ input.di }}"}, "unknown_property", "/order_id"),
        ({"order_id": "${{ input.id.x }}"}, "unknown_property", "/order_id"),
        ({"amount": 1}, "unknown_argument", "/amount"),
    ],
)
def test_arguments_must_fit_the_tool(arguments: Any, code: str, pointer: str) -> None:
    assert errors(call(**arguments), input=INPUT) == {(code, f"/steps/s/input{pointer}")}


def test_arguments_that_fit_or_cannot_be_known_are_left_alone() -> None:
    fitting = call(order_id="${{ input.id }}", amount_cents="${{ input.cents }}")
    assert errors(fitting, input=INPUT) == set()
    unknown = call(order_id="${{ input.x }}", amount_cents="${{ int(input.id) }}")
    assert errors(unknown) == set()


def test_a_missing_argument_is_found_in_written_and_in_merged_inputs() -> None:
    missing = {**CHARGE, "input": {"order_id": "x"}}
    assert errors({"s": missing}) == {("missing_argument", "/steps/s/input")}
    merged = {"a": {}, "s": {"type": "tool", "tool": "sum", "needs": ["a"]}}
    assert errors(merged) == {("missing_argument", "/steps/s")}
    assert errors({"numbers": {}, "s": {**merged["s"], "needs": ["numbers"]}}) == set()


def test_a_value_alone_goes_to_the_only_parameter() -> None:
    assert errors({"s": {"type": "tool", "tool": "sum", "input": [1, 2]}}) == set()
    assert errors({"s": {"type": "tool", "tool": "sum", "input": "x"}}) == {
        ("type_mismatch", "/steps/s/input")
    }
    assert errors({"s": {**CHARGE, "input": [1]}}) == {("type_mismatch", "/steps/s/input")}


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (GATE, "decison"),
        (AGENT, "txt"),
        ({**AGENT, "output_schema": {"type": "string"}}, "text"),
        ({**AGENT, "for_each": {"items": [1]}}, "text"),
        ({"type": "wait", "signal": "x", "schema": {"type": "integer"}}, "id"),
    ],
)
def test_a_property_that_an_output_cannot_have_is_found(source: Any, name: str) -> None:
    steps = {"a": source, "b": {"needs": ["a"], "input": f"${{{{ steps.a.output.{name} }}}}"}}
    assert errors(steps) == {("unknown_property", "/steps/b/input")}


def test_what_need_not_be_there_is_a_warning_unless_it_is_tested() -> None:
    step = {"input": "${{ input.mail }}"}
    assert warnings({"s": step}, input=INPUT) == {("may_be_missing", "/steps/s/input")}
    tested = {"when": "has(input.mail) && input.mail != ''"}
    assert warnings({"s": tested}, input=INPUT) == set()


# -- habits ------------------------------------------------------------------------------------

MAIL = {
    "type": "tool",
    "tool": "mail.send",
    "input": {"to": "a", "subject": "b", "text": "c"},
    "effect": {"key": "mail:${{ run.id }}"},
}


@pytest.mark.parametrize(
    ("steps", "warning"),
    [
        ({"s": MAIL}, ("retry_not_idempotent", "/steps/s/tool")),
        (
            {"s": {**AGENT, "prompt": "Look at ${{ run.id }}", "tools": ["mail.send"]}},
            ("agent_without_gate", "/steps/s/tools/0"),
        ),
        (
            {"s": {**CHARGE, "effect": {"key": "const"}}},
            ("constant_key", "/steps/s/effect/key"),
        ),
        (
            {"s": {**CHARGE, "for_each": {"items": [1, 2]}}},
            ("same_key_for_items", "/steps/s/effect/key"),
        ),
        (
            {
                "s": {
                    **CHARGE,
                    "for_each": {"items": [1, 2]},
                    "effect": {"key": "pay:${{ item }}"},
                    "compensate": {"tool": "demo.payments.refund", "effect": EACH_SAME},
                }
            },
            ("same_key_for_items", "/steps/s/compensate/effect/key"),
        ),
        ({"s": CHARGE, "t": {"needs": ["s"]}}, ("no_compensation", "/steps/s")),
        ({"s": {"retry": {"on": ["permanent"]}}}, ("never_retried", "/steps/s/retry/on")),
        ({"s": {"retry": {"base_delay": "2m"}}}, ("delay_above_cap", "/steps/s/retry/base_delay")),
        ({"a": {}, "s": {"needs": ["a"], "late": "cancel"}}, ("late_without_any", "/steps/s/late")),
    ],
)
def test_habits_that_hurt_are_warnings_and_no_errors(
    steps: dict[str, Any], warning: tuple[str, str]
) -> None:
    assert errors(steps) == set()
    assert warnings(steps) == {warning}


# -- all at once -------------------------------------------------------------------------------


def test_what_is_misspelt_does_not_hide_what_else_is_wrong() -> None:
    steps = {
        "a": {"needs": ["b"], "nedes": []},
        "b": {"needs": ["a"], "timeout": "soon"},
        "c": {"type": "tol", "needs": ["nobody"]},
        "d": {"tool": "nope", "type": "tool", "retry": 3},
    }
    assert errors(steps, budgt={}) == {
        ("unknown_key", "/budgt"),
        ("unknown_key", "/steps/a/nedes"),
        ("cycle", "/steps/a/needs"),
        ("bad_duration", "/steps/b/timeout"),
        ("unknown_type", "/steps/c"),
        ("unknown_tool", "/steps/d/tool"),
        ("wrong_type", "/steps/d/retry"),
    }


def test_a_document_that_is_too_large_or_too_deep_is_refused() -> None:
    deep: Any = 1
    for _ in range(65):
        deep = [deep]
    assert found(document({"a": {"input": deep}})) == {("too_deep", "")}
    assert found(document({"a": {"input": "x" * 2**20}})) == {("too_large", "")}
    many = {f"s{i}": {} for i in range(2001)}
    assert found(document(many)) == {("too_large", "/steps")}


def test_two_thousand_steps_are_checked_in_a_few_seconds() -> None:
    steps = {
        f"s{i}": {
            "needs": [f"s{i - 1}"] if i else [],
            "input": f"${{{{ steps.s{i // 2}.output.x + {i} }}}}" if i else None,
        }
        for i in range(2000)
    }
    began = time.process_time()
    assert errors(steps) == set()
    steps["s0"]["needs"] = ["s1999"]
    assert ("cycle", "/steps/s0/needs") in errors(steps)
    assert time.process_time() - began < 10


@given(VALUES)
def test_any_json_gives_problems_and_never_an_exception(value: Any) -> None:
    assert problems(value)
    for key in ("steps", "input", "output", "budget", "defaults"):
        problems({**document({"a": {}}), key: value})


STEP_KEYS = ["a", "b", "c", "d"]
EXPRESSIONS = ["input.x", "steps.a.output.y", "steps.zz", "item", "1 +", "true", "output"]
STEPS = st.fixed_dictionaries(
    {},
    optional={
        "needs": st.lists(
            st.sampled_from(STEP_KEYS)
            | st.fixed_dictionaries(
                {"step": st.sampled_from(STEP_KEYS)},
                optional={
                    "on": st.sampled_from(["failed", "skipped", "any", "often"]),
                    "when": st.sampled_from(EXPRESSIONS),
                },
            ),
            max_size=3,
        ),
        "join": st.sampled_from(["all", "any", "strict", {"at_least": 2}, {"at_least": 0}]),
        "when": st.sampled_from(EXPRESSIONS),
        "fallback": st.sampled_from(STEP_KEYS),
        "input": st.sampled_from(EXPRESSIONS).map(lambda text: {"v": f"${{{{ {text} }}}}"})
        | VALUES,
        "for_each": st.just({"items": "${{ input.x }}"}) | VALUES,
        "repeat": st.just({"until": "output", "max": 3}) | VALUES,
        "timeout": st.sampled_from(["1m", "never"]),
        "output_schema": VALUES,
        "effect": st.just({"key": "k:${{ input.x }}", "money": True}) | VALUES,
    },
)
KINDS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [AGENT, GATE, CHARGE, ROUTER, {"type": "wait", "for": "1s"}, {"type": "wait", "signal": "x"}]
)


@given(st.dictionaries(st.sampled_from(STEP_KEYS), st.tuples(KINDS, STEPS), min_size=1))
def test_any_mix_of_steps_is_reviewed_and_judged_the_same_twice(steps: Any) -> None:
    value = document({key: {**kind, **more} for key, (kind, more) in steps.items()})
    read, first = check_document(value, Installation())
    assert first == check_document(value, Installation())[1]
    assert read is not None or any(problem.severity == "error" for problem in first)
    assert all(problem.message.rstrip(".?…)").strip() for problem in first)
