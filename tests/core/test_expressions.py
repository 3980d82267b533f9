from __future__ import annotations

import contextlib
import json
import time
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.errors import ConditionError
from orchestrator.core.expressions import ExpressionError, compile_expression, compile_template
from tests.core.test_source import VALUES

SCOPE: dict[str, Any] = {
    "input": {
        "text": "abc",
        "n": 2**53 + 1,
        "list": [1, 2, 3],
        "object": {"k": 1},
        "nothing": None,
    },
    "steps": {"draft": {"output": {"score": 5, "for-key": "x"}, "state": "completed"}},
    "run": {"id": "r1", "workflow": "w", "correlation_id": ""},
    "index": 0,
}


def value(text: str) -> Any:
    return compile_expression(text).evaluate(SCOPE)


def failure(text: str) -> str:
    with pytest.raises(ConditionError) as caught:
        value(text)
    return str(caught.value)


def refusal(text: str) -> str:
    with pytest.raises(ExpressionError) as caught:
        compile_expression(text)
    assert caught.value.message
    return caught.value.code


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("input.text", "abc"),
        ("input.n", 2**53 + 1),
        ("input.n + 1", 2**53 + 2),
        ("9223372036854775807", 2**63 - 1),
        ("steps.draft.output.score > 3 && input.text.contains('b')", True),
        ('steps["draft"].output["for-key"]', "x"),
        ("input.text.startsWith('a') && input.text.endsWith('c')", True),
        ("input.text.matches('^a.c$')", True),
        ("input.list[1]", 2),
        ("input.list.filter(x, x > 1)", [2, 3]),
        ("input.list.map(x, x * 2).filter(y, y > 2)", [4, 6]),
        ("input.list.exists(x, x == index)", False),
        ("has(input.missing)", False),
        ("has(input.missing) ? input.missing : 'none'", "none"),
        ("has(input.text) && input.missing == 1 || true", True),
        ("size(input.list)", 3),
        ("input.nothing == null", True),
        ("1.5 + 2.0", 3.5),
        ("7 / 2", 3),
        ('{"a": [input.n, 1.5]}', {"a": [2**53 + 1, 1.5]}),
        ("timestamp('2024-01-01T00:00:00Z') + duration('36h')", "2024-01-02T12:00:00Z"),
        ("duration('90s')", "90s"),
        ("true", True),
        ("null", None),
    ],
)
def test_expressions_mean_what_cel_says(text: str, expected: Any) -> None:
    result = value(text)
    assert result == expected
    assert type(result) is type(expected)


def test_a_missing_key_names_the_expression_and_the_path() -> None:
    for text, path in [
        ("input.missing", "input.missing"),
        ("input.missing > 1", "input.missing"),
        ("steps.draft.output.sore + 1", "steps.draft.output.sore"),
        ("steps.other.output == 1", "steps.other"),
        ("input.list[7]", "input.list[7]"),
        ("item.x == 1", "item"),
    ]:
        message = failure(text)
        assert f"`{text}`" in message
        assert path in message


@pytest.mark.parametrize(
    "text",
    [
        "input.text.x",
        "input.text[0]",
        "input.nothing.x",
        "input.list.x",
        "input.text > 1",
        "1 / 0",
        "1.0 / 0.0",
        "9223372036854775807 + 1",
        "{1: 2}",
        "b'bytes'",
        "int('x')",
        "input.text.matches(input.text + '[')",
    ],
)
def test_what_has_no_json_value_is_a_condition_error(text: str) -> None:
    assert failure(text)


def test_a_condition_that_is_not_boolean_is_an_error_and_never_false() -> None:
    assert compile_expression("index == 0").evaluate_bool(SCOPE) is True
    for text in ("index", "input.text", "input.nothing", "input.list", "input.object", "'true'"):
        with pytest.raises(ConditionError):
            compile_expression(text).evaluate_bool(SCOPE)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("1 +", "syntax"),
        ("", "syntax"),
        ("'open", "syntax"),
        ("a`b`", "syntax"),
        (".input", "syntax"),
        ("Type{a: 1}", "syntax"),
        ("(" * 200 + "1" + ")" * 200, "syntax"),
        ("(" * 500 + "1" + ")" * 500, "too_complex"),
        ("secret", "unknown_name"),
        ("input.x + foo.bar", "unknown_name"),
        ("foo(1)", "unknown_function"),
        ("input.x.lower()", "unknown_function"),
        ("cel.bind(x, 1, x)", "unknown_function"),
        ("steps", "dynamic_step"),
        ("steps[input.x].output", "dynamic_step"),
        ("steps.map(s, s)", "dynamic_step"),
        ("input.l.map(x, input.l.map(y, x))", "nested_macro"),
        ("input.l.filter(x, [1].exists(y, y == x))", "nested_macro"),
        ("input.l.map(a, a).map(b, b).map(c, c)", "too_complex"),
        ("input.l.map(x, [" + "x," * 20 + "x])", "too_complex"),
        ("{'a': 1}.map(k, k)", "unordered"),
        ("input.x.matches('[')", "bad_pattern"),
        ("input.x.matches('(a{1000}){1000}')", "bad_pattern"),
        ("'" + "a" * 2047 + "'", "too_long"),
    ],
)
def test_what_is_out_of_bounds_is_refused_at_publish(text: str, code: str) -> None:
    assert refusal(text) == code


def test_hostile_texts_are_refused_quickly() -> None:
    for text in ("(" * 2000, "[" * 2000, "-" * 2000, "!" * 2000 + "true", "a." * 1000 + "a"):
        began = time.process_time()
        refusal(text)
        assert time.process_time() - began < 0.5


def test_map_over_an_object_is_refused_since_its_order_is_not_fixed() -> None:
    assert "order" in failure("input.object.map(k, k)")
    assert value("input.object.exists(k, k == 'k')") is True


def test_a_macro_may_not_multiply_large_data() -> None:
    scope = {"input": {"list": list(range(20_000)), "text": "x" * 1000}}
    program = compile_expression("input.list.map(i, input.text)")
    with pytest.raises(ConditionError, match="too large"):
        program.evaluate(scope)


def test_an_integer_beyond_64_bits_is_never_rounded() -> None:
    scope = {"input": {"n": 2**70, "l": [2**70]}}
    assert compile_expression("input.n").evaluate(scope) == 2**70
    for text in ("input.n == 1", "input.l[0] == 1", "size(input.l)"):
        with pytest.raises(ConditionError, match="64 bits"):
            compile_expression(text).evaluate(scope)


def test_only_what_is_named_is_read() -> None:
    class Steps(dict[str, Any]):
        def __missing__(self, key: str) -> Any:
            raise AssertionError(f"{key} was read")

        def __contains__(self, key: object) -> bool:
            return True

    steps = Steps(draft=SCOPE["steps"]["draft"])
    scope = MappingProxyType({"input": {}, "steps": steps})
    assert compile_expression("steps.draft.output.score + 1").evaluate(scope) == 6
    assert compile_expression("steps.draft.state").evaluate(scope) == "completed"


def test_a_program_tells_what_it_names() -> None:
    program = compile_expression(
        'steps.a.output.x > 1 && steps["b"].state == "failed" && has(input.q.r) && '
        "input.list.exists(i, i.steps == item)"
    )
    assert program.references == {"a", "b"}
    assert program.names == {"steps", "input", "item"}
    assert ("steps", "a", "output", "x") in program.paths
    assert program.tested == (("input", "q", "r"),)


def test_equal_texts_are_compiled_once() -> None:
    assert compile_expression("input.a == 1") is compile_expression("input.a == 1")


@given(VALUES)
def test_one_expression_alone_keeps_the_type(data: Any) -> None:
    scope = {"input": {"x": data}}
    assert compile_template("${{ input.x }}").render(scope) == data
    assert compile_template({"a": ["${{ input.x }}"]}).render(scope) == {"a": [data]}


@given(VALUES)
def test_within_text_values_other_than_strings_are_compact_json(data: Any) -> None:
    text = compile_template("<${{ input.x }}>").render({"input": {"x": data}})
    inner = text[1:-1]
    if isinstance(data, str):
        assert inner == data
    else:
        assert json.loads(inner) == data
        assert inner == json.dumps(data, ensure_ascii=False, separators=(",", ":"))


@given(VALUES)
def test_templates_inside_data_are_never_evaluated(data: Any) -> None:
    scope = {"input": {"x": {"evil": "${{ input.y }}", "data": data}}}
    assert compile_template("${{ input.x }}").render(scope) == scope["input"]["x"]
    assert compile_template("a ${{ input.x.evil }}").render(scope) == "a ${{ input.y }}"


@given(VALUES.filter(lambda v: "${{" not in json.dumps(v)))
def test_json_without_expressions_renders_as_itself(data: Any) -> None:
    template = compile_template(data)
    assert template.is_constant
    assert template.render({}) == data


@given(st.text(max_size=60))
def test_any_text_compiles_or_is_refused(text: str) -> None:
    for attempt in (lambda: compile_expression(text), lambda: compile_template("${{" + text)):
        with contextlib.suppress(ExpressionError):
            attempt()


@given(
    st.lists(
        st.sampled_from(
            [
                "input",
                ".",
                "l",
                "(",
                ")",
                "[",
                "]",
                "{",
                "}",
                '"a"',
                "x",
                ",",
                "map",
                "has",
                "+",
                ":",
                "?",
                "1",
                "1.5",
                "==",
                " in ",
            ]
        ),
        max_size=14,
    )
)
def test_any_row_of_tokens_compiles_or_is_refused_and_then_evaluates_or_errs(
    row: list[str],
) -> None:
    try:
        program = compile_expression("".join(row))
    except ExpressionError:
        return
    with contextlib.suppress(ConditionError):
        json.dumps(program.evaluate({"input": {"l": [1]}}), allow_nan=False)


def test_a_constant_template_is_new_each_time() -> None:
    template = compile_template({"a": [1]})
    template.render({})["a"].append(2)
    assert template.render({}) == {"a": [1]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('${{ {"a": {"b": 1}} }}', {"a": {"b": 1}}),
        ('${{ "}}" }}', "}}"),
        ("${{ 1 }}${{ 2 }}", "12"),
        (" ${{ 1 }}", " 1"),
        ("{{ x }} $ {", "{{ x }} $ {"),
        ("", ""),
    ],
)
def test_the_end_of_an_expression_is_found(text: str, expected: Any) -> None:
    assert compile_template(text).render({}) == expected


@pytest.mark.parametrize(
    ("template", "code"),
    [
        ("${{ input.a", "unclosed"),
        ("${{ }}", "syntax"),
        ({"${{ input.a }}": 1}, "template_in_key"),
        (["a", {"b": "x ${{ nope }}"}], "unknown_name"),
    ],
)
def test_a_wrong_template_is_refused(template: Any, code: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_template(template)
    assert caught.value.code == code


@pytest.mark.parametrize(
    "text", ["'a\\x00b'", "['ok', 'a\\u0000b']", "{'k': 'a\\x00'}", "{'\\x00': 1}"]
)
def test_a_result_that_nothing_can_store_is_an_error_of_the_condition(text: str) -> None:
    assert "NUL" in failure(text)
