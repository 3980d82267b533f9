"""From the values that an author writes to the plain JSON of the document."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any

from orchestrator.authoring.errors import WorkflowError
from orchestrator.authoring.references import Expr, Need, StepRef
from orchestrator.authoring.registry import registry
from orchestrator.core.durations import format_duration
from orchestrator.core.json_text import MAX_DEPTH, integer_problem, text_problem
from orchestrator.core.problems import pointer_to

Place = tuple[str | int, ...]

_CEL = frozenset(
    {
        ("when",),
        ("value",),
        ("needs", "*", "when"),
        ("routes", "*", "when"),
        ("repeat", "until"),
        ("merge", "expression"),
    }
)
_STEPS = frozenset({("needs", "*"), ("needs", "*", "step"), ("routes", "*", "to", "*")}) | {
    ("fallback",)
}
_TOOLS = frozenset({("tool",), ("tools", "*"), ("compensate", "tool")})
_MONEY = frozenset({("cost_limit_usd",), ("cost_usd",)})


def plain(value: Any, place: Place = (), *, flow: object = None) -> Any:
    """``value`` as plain JSON, made anew. ``place`` is where it stands, from the step's own keys
    (or the document's) on; ``flow`` is the workflow whose steps may be named.

    Raises WorkflowError for what a document cannot hold.
    """
    if len(place) > MAX_DEPTH:
        raise _refused(place[:8], f"it is nested deeper than {MAX_DEPTH} levels")
    if value is None or isinstance(value, bool):
        return value
    for kind, make in _MAKERS:
        if isinstance(value, kind):
            return make(value, place, flow)
    if callable(value):
        return _tool(value, place)
    raise _refused(place, f"a {type(value).__name__} cannot stand in a document")


def _text(value: str, place: Place, _flow: object) -> str:
    found = text_problem(value)
    if found is not None:
        raise _refused(place, found[1])
    return str(value)


def _integer(value: int, place: Place, _flow: object) -> int:
    found = integer_problem(str(int(value)))
    if found is not None:
        raise _refused(place, found[1])
    return int(value)


def _float(value: float, place: Place, _flow: object) -> float:
    if not math.isfinite(value):
        raise _refused(place, f"{value} is no JSON number")
    return float(value)


def _mapping(value: Mapping[Any, Any], place: Place, flow: object) -> dict[str, Any]:
    for key in value:
        if not isinstance(key, str):
            raise _refused(place, f"the key {key!r} is no text")
        _text(key, place, flow)
    return {str(key): plain(each, (*place, key), flow=flow) for key, each in value.items()}


def _list(value: list[Any], place: Place, flow: object) -> list[Any]:
    return [plain(each, (*place, index), flow=flow) for index, each in enumerate(value)]


def _expression(value: Expr, place: Place, _flow: object) -> str:
    if _kind(place) in _STEPS:
        raise _refused(place, f"{value!r} is no step: name the step itself")
    return f"{value:cel}" if _kind(place) in _CEL else str(value)


def _step(value: StepRef, place: Place, flow: object) -> str:
    if _kind(place) not in _STEPS:
        raise _refused(place, f"{value!r} is a step: write .output for what it answers")
    if value.flow is not flow:
        raise _refused(place, f"{value!r} belongs to another workflow")
    return value.key


def _need(value: Need, place: Place, flow: object) -> dict[str, Any]:
    if place[:1] != ("needs",) or len(place) != 2:
        raise _refused(place, "need(…) stands in needs only")
    block: dict[str, Any] = {"step": value.step}
    if value.when is not None:
        block["when"] = value.when
    if value.on is not None:
        block["on"] = value.on
    return _mapping(block, place, flow)


def _span(value: timedelta, place: Place, _flow: object) -> str:
    if value < timedelta(0):
        raise _refused(place, "a duration cannot be negative")
    return format_duration(value)


def _money(value: Decimal, place: Place, _flow: object) -> str:
    if _kind(place)[-1:] not in _MONEY:
        raise _refused(place, "a Decimal is an amount of money: write a number or text in data")
    return f"{value:f}"


def _tool(function: Callable[..., Any], place: Place) -> str:
    if _kind(place) not in _TOOLS:
        raise _refused(place, f"the function {function!r} cannot stand in a document")
    name = registry.name_of(function)
    if name is None:
        where = getattr(function, "__qualname__", repr(function))
        raise _refused(place, f"the function {where} is no tool: decorate it with @tool")
    return name


_MAKERS: tuple[tuple[type[Any], Callable[[Any, Place, object], Any]], ...] = (
    (str, _text),
    (int, _integer),
    (float, _float),
    (Mapping, _mapping),
    (list, _list),
    (tuple, _list),
    (Expr, _expression),
    (StepRef, _step),
    (Need, _need),
    (timedelta, _span),
    (Decimal, _money),
)


def _kind(place: Place) -> tuple[str, ...]:
    return tuple("*" if isinstance(part, int) else part for part in place)


def _refused(place: Place, words: str) -> WorkflowError:
    return WorkflowError(f"{pointer_to(*place) or '/'}: {words}")
