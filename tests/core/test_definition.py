from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.definition import (
    Document,
    Edge,
    Join,
    Merge,
    Need,
    Retry,
    SubWorkflowStep,
    WorkflowRef,
    document_edges,
    effective_retry,
    effective_timeout,
    parse_document,
    run_timeout,
)
from orchestrator.core.durations import format_duration, format_money, parse_duration, parse_money
from orchestrator.core.errors import ErrorClass
from orchestrator.core.source import load_yaml
from tests.core.documents import ORDER_PAYMENT, document
from tests.core.test_source import VALUES


def parsed(value: Any) -> Document:
    result, problems = parse_document(value)
    assert result is not None, problems
    return result


def codes(value: Any) -> dict[str, str]:
    result, problems = parse_document(value)
    assert result is None
    assert all(problem.message.endswith((".", "?")) for problem in problems)
    return {problem.pointer: problem.code for problem in problems}


def test_the_document_of_the_contract_is_read_whole() -> None:
    order = parsed(load_yaml(ORDER_PAYMENT.encode()).value)
    assert order.budget is not None
    assert order.budget.cost_usd == 2_000_000
    assert order.budget.duration == timedelta(minutes=10)
    assert list(order.steps) == ["approve", "charge", "update_crm", "send_receipt"]
    assert order.steps["charge"].edges == (Need(step="approve"),)
    assert order.steps["charge"].has_input
    assert not order.steps["approve"].has_input
    assert run_timeout(order) == (timedelta(days=30), "wall")
    assert effective_timeout(order.steps["approve"], order.defaults) == timedelta(days=7)
    assert effective_timeout(order.steps["charge"], order.defaults) == timedelta(minutes=5)


def test_the_defaults_are_those_of_the_contract() -> None:
    example = parsed(
        document(
            {
                "tool": {},
                "gate": {"type": "human_gate", "assignees": ["role:x"]},
                "wait": {"type": "wait", "signal": "paid"},
                "child": {"type": "sub_workflow", "workflow": "other@3"},
            },
            defaults={"timeout": "1m"},
        )
    )
    steps = example.steps
    limits = {key: effective_timeout(step, example.defaults) for key, step in steps.items()}
    assert limits == {
        "tool": timedelta(minutes=1),
        "gate": timedelta(hours=24),
        "wait": None,
        "child": None,
    }
    assert effective_retry(steps["tool"], example.defaults) == Retry(
        max_retries=3,
        backoff="exponential",
        base_delay=timedelta(seconds=2),
        max_delay=timedelta(seconds=60),
        on=frozenset({ErrorClass.TIMEOUT, ErrorClass.RATE_LIMIT, ErrorClass.TRANSIENT}),
    )
    assert run_timeout(example) == (timedelta(hours=1), "working")
    assert steps["tool"].join == Join("all")
    assert steps["tool"].merge == Merge("nested")
    assert example.max_parallel == 10
    child = steps["child"]
    assert isinstance(child, SubWorkflowStep)
    assert child.child == WorkflowRef("other", 3)


def test_each_key_of_a_retry_comes_from_the_nearest_place_that_says_it() -> None:
    example = parsed(
        document(
            {"a": {"retry": {"max_retries": 0, "on": ["child_failed"]}}, "b": {}},
            defaults={"retry": {"max_retries": 5, "backoff": "linear"}},
        )
    )
    own = effective_retry(example.steps["a"], example.defaults)
    assert (own.max_retries, own.backoff, own.on) == (0, "linear", {ErrorClass.CHILD_FAILED})
    assert effective_retry(example.steps["b"], example.defaults).max_retries == 5


def test_needs_joins_and_merges_are_normalised() -> None:
    step = parsed(
        document(
            {
                "a": {},
                "b": {},
                "c": {
                    "needs": ["a", {"step": "b", "on": "failed", "when": "true"}],
                    "join": {"at_least": 2},
                    "merge": {"expression": "1"},
                },
            }
        )
    ).steps["c"]
    assert step.edges == (Need(step="a"), Need(step="b", on="failed", when="true"))
    assert step.join == Join("at_least", 2)
    assert step.merge == Merge("expression", "1")


def test_a_route_is_an_edge_without_saying_so() -> None:
    routes = [
        {"id": "x", "to": ["a", "b"], "when": "true"},
        {"id": "y", "to": ["a"]},
    ]
    example = parsed(
        document(
            {
                "r": {"type": "router", "routes": routes, "default": "y"},
                "a": {"needs": ["r"]},
                "b": {"needs": ["a"]},
            }
        )
    )
    assert document_edges(example) == (
        Edge(source="r", target="a", routes=("x", "y")),
        Edge(source="a", target="b"),
        Edge(source="r", target="b", routes=("x",), declared=False, position=1),
    )


def test_every_structural_problem_is_listed_with_its_pointer() -> None:
    value = document(
        {
            "Bad Key": {},
            "untyped": {"type": "tol"},
            "number": {
                "needs": ["Not A Key", {"step": "a", "of": 1}, 3],
                "join": "most",
                "timeout": 5,
                "optional": "yes",
                "neds": [],
                "effect": {},
                "repeat": {"until": "true"},
                "retry": {"on": ["sometimes"], "max_retries": "3", "base_delay": "2 s"},
                "cost_limit_usd": "much",
            },
        },
        nme="x",
        max_parallel=0,
    )
    value["steps"]["empty"] = {}
    value["steps"]["text"] = "x"
    assert codes(value) == {
        "/steps/Bad Key": "bad_key",
        "/steps/untyped": "unknown_type",
        "/steps/empty": "missing_key",
        "/steps/text": "wrong_type",
        "/steps/number/needs/0": "bad_name",
        "/steps/number/needs/1/of": "unknown_key",
        "/steps/number/needs/2": "wrong_type",
        "/steps/number/join": "bad_join",
        "/steps/number/timeout": "bad_duration",
        "/steps/number/optional": "wrong_type",
        "/steps/number/neds": "unknown_key",
        "/steps/number/effect/key": "effect_without_key",
        "/steps/number/repeat/max": "loop_without_bound",
        "/steps/number/retry/on/0": "bad_value",
        "/steps/number/retry/max_retries": "wrong_type",
        "/steps/number/retry/base_delay": "bad_duration",
        "/steps/number/cost_limit_usd": "bad_money",
        "/nme": "unknown_key",
        "/max_parallel": "out_of_range",
    }


def test_an_unknown_key_suggests_the_nearest_known_one() -> None:
    problems = parse_document(document({"a": {"nedes": []}}, titel="x"))[1]
    mends = {problem.pointer: problem.message for problem in problems}
    assert 'did you mean "needs"?' in mends["/steps/a/nedes"]
    assert 'did you mean "title"?' in mends["/titel"]


@pytest.mark.parametrize("tag", ["tool", "agent", "steps", "needs"])
def test_a_key_that_is_called_like_a_type_keeps_its_pointer(tag: str) -> None:
    assert codes(document({tag: {"needs": [1]}})) == {f"/steps/{tag}/needs/0": "wrong_type"}


@given(VALUES)
def test_any_json_as_a_document_gives_problems_and_never_an_exception(value: Any) -> None:
    result, problems = parse_document(value)
    assert result is None
    assert problems


KEYS_OF_STEPS = st.sampled_from(
    ["type", "needs", "join", "merge", "retry", "effect", "for_each", "repeat", "routes", "timeout"]
)


@given(st.dictionaries(KEYS_OF_STEPS, VALUES), VALUES)
def test_any_json_as_a_step_gives_problems_and_never_an_exception(step: Any, key: Any) -> None:
    for value in ({"type": "tool", "tool": "noop", **step}, {"type": "router", **step}):
        parse_document(document({"a": value}, budget=key, labels=key, triggers=key))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("30s", 30),
        ("5m", 300),
        ("4h", 14400),
        ("7d", 604800),
        ("1.5h", 5400),
        ("PT4H", 14400),
        ("P1DT30M", 88200),
        ("P2W", 1209600),
        ("PT0.25S", 0.25),
        ("0s", 0),
    ],
)
def test_durations_are_read_in_both_forms(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "5 m",
        "-1s",
        "P",
        "PT",
        "P1Y",
        "P1M",
        "1e3s",
        "\uff15m",
        "9999999d",
        "4h\n",
        "1h30m",
    ],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=3000)))
def test_a_duration_written_out_reads_back(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


@given(st.integers(0, 10**15))
def test_money_written_out_reads_back_exactly(microusd: int) -> None:
    assert parse_money(format_money(microusd)) == microusd


@pytest.mark.parametrize(
    ("value", "microusd"), [(2.00, 2_000_000), (2, 2_000_000), ("0.50", 500_000), (0.1, 100_000)]
)
def test_money_is_decimal(value: Any, microusd: int) -> None:
    assert parse_money(value) == microusd


@pytest.mark.parametrize(
    "value", ["", "x", "nan", "1e999999999", -1, True, None, [], 0.0000001, "0.0000001", 10**10]
)
def test_what_is_no_money_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"money|amount|decimals"):
        parse_money(value)
