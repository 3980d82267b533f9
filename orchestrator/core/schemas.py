"""JSON Schema 2020-12 with local references only, compiled once per text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jsonschema_rs
import orjson

from orchestrator.core.problems import pointer_to

_MOST_PROBLEMS = 100
_DRAFT = "https://json-schema.org/draft/2020-12/schema"


class SchemaError(ValueError):
    """A JSON Schema that cannot be used; ``pointer`` leads into the schema."""

    def __init__(self, pointer: str, message: str) -> None:
        super().__init__(message)
        self.pointer = pointer
        self.message = message


@dataclass(frozen=True, slots=True)
class SchemaProblem:
    """Where a value breaks its schema: a JSON pointer into the value, and why."""

    pointer: str
    message: str


class Schema:
    """A compiled JSON Schema; formats (``email``, ``date-time``, …) are asserted."""

    __slots__ = ("_validator",)

    def __init__(self, validator: jsonschema_rs.Draft202012Validator) -> None:
        self._validator = validator

    def accepts(self, value: Any) -> bool:
        """Whether the value fits; faster than ``check``."""
        return self._validator.is_valid(value)

    def check(self, value: Any) -> list[SchemaProblem]:
        """Everything about the value that breaks the schema (at most 100); empty when it fits."""
        problems = []
        for error in self._validator.iter_errors(value):
            path = error.instance_path
            problems.append(SchemaProblem(pointer_to(*path), _shortened(error.message)))
            if len(problems) == _MOST_PROBLEMS:
                break
        return problems


def compile_schema(schema: Mapping[str, Any]) -> Schema:
    """Compile a schema (equal ones share one); raises ``SchemaError``.

    Refused: what is no valid JSON Schema 2020-12, another ``$schema``, and any ``$ref`` that is
    not local (``#/…``): a run may not depend on what another host serves.
    """
    return _compiled(orjson.dumps(schema, option=orjson.OPT_SORT_KEYS))


@lru_cache(maxsize=1024)
def _compiled(text: bytes) -> Schema:
    schema = orjson.loads(text)
    for pointer, message in _refused_keywords(schema, ""):
        raise SchemaError(pointer, message)
    try:
        jsonschema_rs.meta.validate(schema)
        return Schema(
            jsonschema_rs.Draft202012Validator(
                schema, validate_formats=True, pattern_options=jsonschema_rs.RegexOptions()
            )
        )
    except jsonschema_rs.ValidationError as error:
        raise SchemaError(
            pointer_to(*error.instance_path), f"not a JSON Schema: {_shortened(error.message)}"
        ) from None
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        raise SchemaError("", f"not a usable JSON Schema: {_shortened(str(error))}") from None


def _refused_keywords(value: Any, pointer: str) -> Iterator[tuple[str, str]]:
    """References to elsewhere and other drafts, anywhere in the schema."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _refused_keywords(item, pointer + pointer_to(index))
    if isinstance(value, dict):
        yield from _refused_here(value, pointer)
        for key, item in value.items():
            if key not in ("const", "enum", "default", "examples"):
                yield from _refused_keywords(item, pointer + pointer_to(key))


def _refused_here(schema: dict[str, Any], pointer: str) -> Iterator[tuple[str, str]]:
    """Only texts count, since a property may be *called* ``$ref``."""
    for keyword in ("$ref", "$dynamicRef"):
        target = schema.get(keyword)
        if isinstance(target, str) and not target.startswith("#"):
            yield (
                pointer + pointer_to(keyword),
                f'{keyword} "{target[:60]}" leads elsewhere: use local references (#/$defs/…).',
            )
    draft = schema.get("$schema")
    if isinstance(draft, str) and draft.rstrip("#") != _DRAFT:
        yield pointer + "/$schema", f"only JSON Schema 2020-12 is read: write {_DRAFT}"


def _shortened(message: str) -> str:
    limit = 300
    return message if len(message) <= limit else message[: limit - 1] + "…"
