"""What may leave a step: JSON that PostgreSQL and every client can hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from orchestrator.core.errors import ErrorClass, StepError
from orchestrator.core.schemas import SchemaError, compile_schema

MAX_DEPTH = 64
MAX_PROBLEMS = 20
_LOWEST, _HIGHEST = -(2**63), 2**64 - 1


class NotJson(ValueError):
    """A value that cannot be stored as JSON; the message starts with its pointer."""


def plain_json(value: Any) -> Any:
    """A copy of ``value`` made of dicts, lists, strings, numbers, booleans and None only.

    Tuples become lists. ``NotJson`` for other types, keys that are no strings, NUL characters, lone
    surrogates, NaN and infinities, integers beyond 64 bits, and more than 64 levels.
    """
    return _plain(value, pointer="", depth=0)


def output_error(output: Any, schema: Mapping[str, Any] | None) -> StepError | None:
    """A ``schema_error`` when ``output`` breaks the step's ``output_schema``, else None."""
    if schema is None:
        return None
    try:
        problems = compile_schema(schema).check(output)
    except SchemaError as error:
        message = f"output_schema{error.pointer}: {error.message}"
        return StepError(error_class=ErrorClass.SCHEMA_ERROR, message=message)
    if not problems:
        return None
    return StepError(
        error_class=ErrorClass.SCHEMA_ERROR,
        message=(
            "output does not fit output_schema: "
            f"{problems[0].pointer or '/'}: {problems[0].message}"
        ),
        details={
            "problems": [
                {"pointer": each.pointer, "detail": each.message}
                for each in problems[:MAX_PROBLEMS]
            ]
        },
    )


def _plain(value: Any, *, pointer: str, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise NotJson(f"{pointer[:200]}: nested deeper than {MAX_DEPTH} levels")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, dict):
        return {
            _key(key, pointer=pointer): _plain(
                each, pointer=f"{pointer}/{str(key)[:100]}", depth=depth + 1
            )
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [
            _plain(each, pointer=f"{pointer}/{position}", depth=depth + 1)
            for position, each in enumerate(value)
        ]
    return _scalar(value, pointer=pointer)


def _scalar(value: Any, *, pointer: str) -> Any:
    if isinstance(value, str):
        return _text(value, pointer=pointer)
    if isinstance(value, int):
        if not _LOWEST <= value <= _HIGHEST:
            raise NotJson(f"{pointer or '/'}: the integer does not fit into 64 bits")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NotJson(f"{pointer or '/'}: {value} is no JSON number")
        return float(value)
    raise NotJson(f"{pointer or '/'}: {type(value).__name__} is no JSON type")


def _key(key: Any, *, pointer: str) -> str:
    if not isinstance(key, str):
        raise NotJson(f"{pointer or '/'}: the key {key!r} is not a string")
    return _text(key, pointer=pointer)


def _text(value: str, *, pointer: str) -> str:
    if "\x00" in value:
        raise NotJson(f"{pointer or '/'}: the text contains a NUL character")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise NotJson(f"{pointer or '/'}: the text contains half a surrogate pair") from None
    return str(value)
