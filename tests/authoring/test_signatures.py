from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from orchestrator.authoring import ArgumentMismatch, ToolDefinitionError
from orchestrator.authoring.signature import read_signature

if TYPE_CHECKING:
    from orchestrator.authoring import ToolContext


class Line(BaseModel):
    sku: str
    quantity: int = 1


class Receipt(TypedDict):
    external_ref: str
    amount_cents: int


def order(
    ctx: ToolContext,
    order_id: str,
    lines: list[Line],
    rate: float,
    currency: Literal["EUR", "USD"] = "EUR",
    note: str | None = None,
    urgent: bool = False,
    extra: dict[str, int] | None = None,
) -> Receipt:
    return {"external_ref": order_id, "amount_cents": len(lines)}


def test_typed_parameters_give_the_input_schema():
    schema = read_signature(order).input_schema

    assert schema["required"] == ["order_id", "lines", "rate"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["order_id"] == {"type": "string"}
    assert schema["properties"]["rate"] == {"type": "number"}
    assert schema["properties"]["currency"] == {
        "type": "string",
        "enum": ["EUR", "USD"],
        "default": "EUR",
    }
    assert schema["properties"]["note"]["anyOf"] == [{"type": "string"}, {"type": "null"}]
    assert schema["properties"]["lines"]["items"] == {"$ref": "#/$defs/Line"}
    assert schema["$defs"]["Line"]["required"] == ["sku"]


def test_the_context_is_no_argument_even_when_its_type_is_for_the_checker_only():
    signature = read_signature(order)

    assert signature.takes_context
    assert signature.parameters[0] == "order_id"


def test_the_return_annotation_gives_the_output_schema():
    assert read_signature(order).output_schema["required"] == ["external_ref", "amount_cents"]


@pytest.mark.parametrize("annotation", [Any, None])
def test_a_return_annotation_that_says_nothing_gives_no_schema(annotation):
    def answer(order_id: str):
        return order_id

    if annotation is not None:
        answer.__annotations__["return"] = annotation

    assert read_signature(answer).output_schema is None


def test_arguments_arrive_typed_and_defaults_are_left_to_the_function():
    bound = read_signature(order).bind(
        {"order_id": "A-1", "lines": [{"sku": "x"}], "rate": 2, "note": None}
    )

    assert bound == {"order_id": "A-1", "lines": [Line(sku="x")], "rate": 2.0, "note": None}


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"order_id": 5}, "/order_id"),
        ({"rate": "2"}, "/rate"),
        ({"lines": [{"sku": "x", "quantity": "2"}]}, "/lines/0/quantity"),
        ({"lines": "x"}, "/lines"),
        ({"currency": "GBP"}, "/currency"),
        ({"urgent": 1}, "/urgent"),
        ({"unknown": 1}, "/unknown"),
        ({"extra": {"a/b": "1"}}, "/extra/a~1b"),
    ],
)
def test_what_does_not_fit_is_named_by_its_pointer(change, pointer):
    with pytest.raises(ArgumentMismatch) as caught:
        read_signature(order).bind({"order_id": "A", "lines": [], "rate": 1.5, **change})

    assert [problem["pointer"] for problem in caught.value.problems] == [pointer]
    assert pointer in str(caught.value)


def test_every_missing_argument_is_named():
    with pytest.raises(ArgumentMismatch) as caught:
        read_signature(order).bind({})

    assert [problem["pointer"] for problem in caught.value.problems] == [
        "/order_id",
        "/lines",
        "/rate",
    ]


def test_an_array_goes_to_the_one_parameter_of_a_function():
    def total(ctx, amounts: list[int]) -> int:
        return sum(amounts)

    assert read_signature(total).bind([1, 2]) == {"amounts": [1, 2]}
    assert read_signature(total).bind({"amounts": [3]}) == {"amounts": [3]}


def test_an_array_for_two_parameters_is_refused():
    def total(first: list[int], second: list[int]) -> int:
        return sum(first + second)

    with pytest.raises(ArgumentMismatch, match="an object with the arguments is needed, not list"):
        read_signature(total).bind([1, 2])


def test_no_input_calls_a_function_without_parameters():
    assert read_signature(lambda: 1).bind(None) == {}


def test_a_parameter_may_bear_the_name_of_a_model_attribute():
    def send(json: Any, schema: str = "", model_config: int = 0, copy: bool = False) -> None: ...

    signature = read_signature(send)

    assert signature.bind({"json": [1], "schema": "s", "model_config": 3, "copy": True}) == {
        "json": [1],
        "schema": "s",
        "model_config": 3,
        "copy": True,
    }


def test_named_arguments_and_any_others():
    def shape(kind: str, **values: Any) -> dict[str, Any]:
        return values

    signature = read_signature(shape)

    assert signature.input_schema["additionalProperties"] is True
    assert signature.bind({"kind": "a", "b": 1, "c": [None]}) == {"kind": "a", "b": 1, "c": [None]}


def test_json_forms_of_dates_and_decimals_are_read():
    def book(day: date, amount: Decimal) -> None: ...

    assert read_signature(book).bind({"day": "2030-01-31", "amount": "1.10"}) == {
        "day": date(2030, 1, 31),
        "amount": Decimal("1.10"),
    }


def test_constraints_written_with_annotated_hold():
    def pay(amount_cents: Annotated[int, Field(gt=0)]) -> None: ...

    signature = read_signature(pay)

    assert signature.input_schema["properties"]["amount_cents"]["exclusiveMinimum"] == 0
    with pytest.raises(ArgumentMismatch, match="/amount_cents"):
        signature.bind({"amount_cents": 0})


def test_integers_stay_exact():
    def keep(number: int) -> None: ...

    assert read_signature(keep).bind({"number": 2**63 - 1}) == {"number": 2**63 - 1}


@pytest.mark.parametrize("value", [{"number": float("nan")}, {"number": {1, 2}}])
def test_an_input_that_is_no_json_is_a_mismatch(value):
    def keep(number: Any) -> None: ...

    with pytest.raises(ArgumentMismatch, match="not JSON"):
        read_signature(keep).bind(value)


async def _async_tool() -> None: ...


def _generator_tool():
    yield 1


def _positional_only(a, /): ...


def _var_positional(*a): ...


class _Opaque:
    pass


def _unknown_type(a: _Opaque): ...


def _missing_type(a: NotImported): ...  # noqa: F821 - the case under test


@pytest.mark.parametrize(
    "function",
    [
        _async_tool,
        _generator_tool,
        _positional_only,
        _var_positional,
        _unknown_type,
        _missing_type,
    ],
)
def test_a_function_that_cannot_be_a_tool_is_refused_by_name(function):
    with pytest.raises(ToolDefinitionError, match=function.__name__):
        read_signature(function)
