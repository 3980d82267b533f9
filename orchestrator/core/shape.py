"""What pydantic refused, in the words of the document: code, pointer, line and how to mend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from orchestrator.core.document import SCHEMA_NAME, Document
from orchestrator.core.policies import (
    Budget,
    Compensate,
    Defaults,
    Effect,
    Escalation,
    ForEach,
    Need,
    Repeat,
    RetryPolicy,
    Route,
    Sla,
)
from orchestrator.core.problems import LineOf, Problem, pointer_to, suggestion
from orchestrator.core.step_kinds import STEP_CLASSES

Location = tuple[str | int, ...]

_BLOCKS: dict[str, type[BaseModel]] = {
    "budget": Budget,
    "compensate": Compensate,
    "defaults": Defaults,
    "effect": Effect,
    "escalate": Escalation,
    "for_each": ForEach,
    "needs": Need,
    "repeat": Repeat,
    "retry": RetryPolicy,
    "routes": Route,
    "sla": Sla,
}
_MISSING_CODES = {
    ("repeat", "max"): "loop_without_bound",
    ("effect", "key"): "effect_without_key",
}


def shape_problems(details: list[ErrorDetails], value: Any, line_of: LineOf) -> list[Problem]:
    """One problem for each thing that pydantic refused in the document ``value``."""
    return [_problem(detail, value, line_of) for detail in details]


def _problem(detail: ErrorDetails, value: Any, line_of: LineOf) -> Problem:
    location = _existing(_location(detail["loc"]), value)
    code, message = _words(detail, location, value)
    pointer = pointer_to(*location)
    line = line_of(pointer)
    if line is None and location:
        line = line_of(pointer_to(*location[:-1]))
    return Problem("error", code, pointer, line, message)


def _location(loc: Location) -> Location:
    """The path in the document: pydantic's union tag and its mark for dictionary keys removed."""
    parts = [part for part in loc if part != "[key]"]
    if len(parts) > 2 and parts[0] == "steps":
        del parts[2]
    return tuple(parts)


def _existing(location: Location, value: Any) -> Location:
    """Cut below a plain value: ``needs: [draft]`` has no ``/needs/0/step``."""
    for depth, part in enumerate(location):
        if not isinstance(value, dict | list):
            return location[:depth]
        try:
            value = value[part]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            return location[: depth + 1]
    return location


def _words(detail: ErrorDetails, location: Location, value: Any) -> tuple[str, str]:
    kind = detail["type"]
    if kind == "extra_forbidden":
        return "unknown_key", _unknown_key(location, value)
    if kind in ("missing", "union_tag_not_found"):
        return _missing(kind, location)
    if kind == "union_tag_invalid":
        known = suggestion(str(detail["ctx"].get("tag", "")), STEP_CLASSES)
        return "unknown_type", f'there is no step type "{detail["ctx"].get("tag")}": {known}'
    if detail["loc"] and detail["loc"][-1] == "[key]":
        return "bad_key", f'"{location[-1]}" is not a valid key: {_PATTERN_MENDS["key"]}'
    return _value_words(detail, location)


def _unknown_key(location: Location, value: Any) -> str:
    name = str(location[-1])
    model = _model_at(location[:-1], value)
    known = [] if model is None else [f.alias or n for n, f in model.model_fields.items()]
    mend = suggestion(name, known)
    return f'unknown key "{name}": {mend or "remove it."}'


def _model_at(location: Location, value: Any) -> type[BaseModel] | None:
    """The block that a path leads to, as far as suggestions need it."""
    names = [part for part in location if isinstance(part, str)]
    if not names:
        return Document
    if len(names) == 2 and names[0] == "steps":
        step = value["steps"][names[1]]
        return STEP_CLASSES.get(step["type"]) if isinstance(step, Mapping) else None
    return _BLOCKS.get(names[-1])


def _missing(kind: str, location: Location) -> tuple[str, str]:
    if kind == "union_tag_not_found":
        listed = ", ".join(STEP_CLASSES)
        return "missing_key", f"the step has no type: add type: one of {listed}."
    names = [str(part) for part in location if isinstance(part, str)]
    code = _MISSING_CODES.get((names[-2], names[-1])) if len(names) > 1 else None
    hint = f' (schema: "{SCHEMA_NAME}")' if location == ("schema",) else ""
    return code or "missing_key", f'"{location[-1]}" is missing: add it{hint}.'


_TYPE_MENDS = {
    "string_type": "write text.",
    "int_type": "write a whole number, without quotes.",
    "float_type": "write a number, without quotes.",
    "bool_type": "write true or false, without quotes.",
    "tuple_type": "write a list.",
    "list_type": "write a list.",
    "dict_type": "write an object (key: value).",
    "model_type": "write an object (key: value).",
    "model_attributes_type": "write an object (key: value).",
    "finite_number": "write a finite number.",
}
_PATTERN_MENDS = {
    "key": "use a-z, 0-9 and _, beginning with a letter, at most 63 characters.",
    "workflow": 'write the name of a workflow, or name@version such as "invoice@3".',
    "as": "begin with a small letter, then letters, digits and _.",
    "id": "use letters, digits, _, . and -, at most 63 characters.",
    "default": "use the id of one of the routes.",
    "signal": "begin with a letter, then letters, digits, _, ., : and -.",
}


def _value_words(detail: ErrorDetails, location: Location) -> tuple[str, str]:
    kind = detail["type"]
    if kind in ("bad_duration", "bad_money", "bad_join", "bad_merge"):
        return kind, detail["msg"]
    if kind in _TYPE_MENDS:
        return "wrong_type", f"{_shown(detail['input'])} does not fit here: {_TYPE_MENDS[kind]}"
    if kind in ("literal_error", "enum"):
        expected = detail["ctx"]["expected"]
        return "bad_value", f"{_shown(detail['input'])} is not possible here: use {expected}."
    if kind == "string_pattern_mismatch":
        mend = _PATTERN_MENDS.get(str(location[-1]), _PATTERN_MENDS["key"])
        return "bad_name", f"{_shown(detail['input'])} is not a valid name: {mend}"
    return _bound_words(detail)


def _bound_words(detail: ErrorDetails) -> tuple[str, str]:
    context = detail.get("ctx", {})
    match detail["type"]:
        case "too_short" | "string_too_short":
            return "too_small", "nothing stands here: write at least one entry or character."
        case "too_long":
            return "too_large", f"too many entries: at most {context['max_length']} are allowed."
        case "greater_than_equal":
            return "out_of_range", f"{_shown(detail['input'])}: use at least {context['ge']}."
        case "less_than_equal":
            return "out_of_range", f"{_shown(detail['input'])}: use at most {context['le']}."
        case _:
            return "bad_value", f"{detail['msg']}: correct this value."


def _shown(value: Any) -> str:
    match value:
        case None:
            return "nothing (null)"
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{value[:40]}{"…" if len(value) > 40 else ""}"'
        case int() | float():
            return str(value)
        case list() | tuple():
            return "a list"
        case _:
            return "an object"
