from __future__ import annotations

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.adapters.llm.base import Choice, ModelError, ModelRequest
from orchestrator.adapters.llm.models import aliases, complete, has_model
from orchestrator.adapters.llm.smallest import smallest_instance
from orchestrator.core.errors import ErrorClass


def ask(prompt, model="offline:echo", **fields):
    return complete(ModelRequest(model=model, prompt=prompt, **fields))


def answer(prompt, **fields):
    return ask(prompt, **fields).text


def test_echo_answers_the_prompt_as_text():
    completion = ask("Hello  you,\nall", system="Be kind.")

    assert completion.text == "Hello  you,\nall"
    assert completion.model == "offline:echo"
    assert (completion.tokens_in, completion.tokens_out) == (5, 3)
    assert completion.cost_microusd == 5 * 3 + 3 * 15


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ('{"kind": "b", "n": 3}', '{"kind": "b", "n": 3}'),
        ('Take {"kind": "a"} please', '{"kind": "a"}'),
        ('{"kind": "zzz"} or rather {"kind": "b"}', '{"kind": "b"}'),
        ('{not json} {\'kind\': 1} {"kind": "b"}', '{"kind": "b"}'),
        ('{"kind": "zzz"}', '{"kind": "a"}'),
        ("nothing here", '{"kind": "a"}'),
        ('{"kind": "b", "text": "Grüße"}', '{"kind": "b", "text": "Grüße"}'),
    ],
)
def test_echo_with_a_schema_takes_the_object_in_the_prompt_that_fits(prompt, expected):
    schema = {"type": "object", "required": ["kind"], "properties": {"kind": {"enum": ["a", "b"]}}}

    assert answer(prompt, output_schema=schema) == expected


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("is it technical or billing?", "technical"),
        ("billing_eu it is", "billing_eu"),
        ("bill", ""),
        ("", ""),
    ],
)
def test_echo_as_a_router_takes_the_id_that_occurs_first(prompt, expected):
    choices = tuple(Choice(id=name) for name in ("billing", "billing_eu", "technical"))

    assert answer(prompt, choices=choices) == expected


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({}, {}),
        ({"type": "object"}, {}),
        ({"type": "string"}, ""),
        ({"type": "string", "minLength": 3}, "xxx"),
        ({"type": "integer"}, 0),
        ({"type": "integer", "minimum": 5}, 5),
        ({"type": "integer", "minimum": 4.5}, 5),
        ({"type": "integer", "exclusiveMinimum": 5}, 6),
        ({"type": "integer", "maximum": -3}, -3),
        ({"type": "integer", "exclusiveMaximum": 0}, -1),
        ({"type": "integer", "minimum": 5, "multipleOf": 4}, 8),
        ({"type": "number", "minimum": 0.5}, 0.5),
        ({"type": "number", "exclusiveMinimum": 0, "maximum": 1}, 0.5),
        ({"type": "boolean"}, False),
        ({"type": "null"}, None),
        ({"type": ["string", "null"]}, ""),
        ({"type": "array"}, []),
        ({"type": "array", "minItems": 2, "items": {"type": "integer", "minimum": 1}}, [1, 1]),
        ({"enum": ["x", "y"]}, "x"),
        ({"const": [1]}, [1]),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, ""),
        ({"oneOf": [{"type": "integer"}, {"type": "null"}]}, 0),
        ({"type": "string", "format": "email"}, "a@example.com"),
        (
            {
                "type": "object",
                "required": ["a", "b"],
                "properties": {"a": {"type": "integer", "minimum": 2}, "c": {"type": "string"}},
            },
            {"a": 2, "b": None},
        ),
        (
            {
                "$defs": {"k": {"enum": ["q"]}},
                "type": "object",
                "required": ["k"],
                "properties": {"k": {"$ref": "#/$defs/k"}},
            },
            {"k": "q"},
        ),
        (
            {
                "allOf": [
                    {"required": ["a"], "properties": {"a": {"type": "string"}}},
                    {"required": ["b"], "properties": {"b": {"type": "integer"}}},
                ],
                "type": "object",
            },
            {"a": "", "b": 0},
        ),
        ({"$ref": "#"}, {}),
    ],
)
def test_the_smallest_instance(schema, expected):
    assert smallest_instance(schema) == expected


LEAVES = st.one_of(
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.builds(lambda low: {"type": "integer", "minimum": low}, st.integers(-50, 50)),
    st.builds(lambda high: {"type": "integer", "exclusiveMaximum": high}, st.integers(-50, 50)),
    st.builds(lambda low: {"type": "number", "exclusiveMinimum": low}, st.integers(-50, 50)),
    st.builds(lambda size: {"type": "string", "minLength": size}, st.integers(0, 9)),
    st.builds(lambda values: {"enum": values}, st.lists(st.text(), min_size=1, max_size=3)),
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(
            lambda items, size: {"type": "array", "items": items, "minItems": size},
            inner,
            st.integers(0, 3),
        ),
        st.builds(
            lambda properties: {
                "type": "object",
                "properties": properties,
                "required": sorted(properties)[:2],
                "additionalProperties": False,
            },
            st.dictionaries(st.text(min_size=1, max_size=5), inner, max_size=4),
        ),
        st.builds(lambda parts: {"anyOf": parts}, st.lists(inner, min_size=1, max_size=3)),
    ),
    max_leaves=12,
)


@given(SCHEMAS)
def test_the_smallest_instance_is_valid(schema):
    assert jsonschema_rs.Draft202012Validator(schema).is_valid(smallest_instance(schema))


def test_a_schema_that_is_none_is_a_permanent_error():
    with pytest.raises(ModelError) as caught:
        ask('{"a": 1}', output_schema={"type": "nonsense"})

    assert caught.value.error_class is ErrorClass.PERMANENT


def test_demo_answers_like_echo_where_its_script_knows_nothing(settings):
    settings.ORCHESTRATOR = {"OFFLINE_DEMO": "tests.adapters.test_offline_models.script"}

    assert answer("Hello", model="offline:demo") == "Hello"
    assert answer("Hello", model="offline:demo", step="greet") == "Good day to you"


def script(request: ModelRequest) -> str | None:
    return "Good day to you" if request.step == "greet" else None


def test_aliases_lead_to_the_offline_model_until_a_setting_says_otherwise(settings):
    settings.ORCHESTRATOR = {}
    assert aliases() == ("deep", "fast")
    assert has_model("fast")
    assert ask("x", model="deep").model == "offline:demo"

    settings.ORCHESTRATOR = {"MODELS": {"small": "offline:echo"}}
    assert has_model("small")
    assert not has_model("fast")


@pytest.mark.parametrize("name", ["", "offline", "offline:", "offline:gpt", "nobody:echo", ":echo"])
def test_an_unknown_model_is_not_there(name):
    assert not has_model(name)
    with pytest.raises(ModelError, match="no model is called"):
        ask("x", model=name)
