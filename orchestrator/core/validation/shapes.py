"""What JSON Schemas say about the end of a path: which types, and whether it can be there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.core.cel_text import Path

Json = Mapping[str, Any]
_REF_DEPTH = 16

GATE_OUTPUT: Json = {
    "type": "object",
    "properties": {
        "decision": {"type": "string"},
        "by": {},
        "notes": {},
        "data": {},
        "upstream": {},
    },
    "required": ["decision", "by", "notes", "data", "upstream"],
    "additionalProperties": False,
}
AGENT_OUTPUT: Json = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
    "additionalProperties": False,
}
ROUTER_OUTPUT: Json = {
    "type": "object",
    "properties": {"routes": {"type": "array", "items": {"type": "string"}}, "why": {}},
    "required": ["routes", "why"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Found:
    """Where a path ends. ``schema`` None: nothing is known.

    ``broken_at`` is how many parts of the path could be followed when it leads nowhere;
    ``optional`` when a part on the way need not be there, ``undeclared`` when an open object
    does not name it.
    """

    schema: Json | None = None
    broken_at: int | None = None
    optional: bool = False
    undeclared: bool = False


def follow(schema: Json | None, path: Path) -> Found:
    """Walk ``path`` down a schema (its root holds the ``$defs``)."""
    root, optional = schema, False
    for depth, part in enumerate(path):
        schema = resolved(schema, root)
        if schema is None or not _is_plain(schema):
            return Found(optional=optional)
        step = _child(schema, part)
        if step is None:
            open_ended = _is_open(schema, part)
            if not open_ended:
                return Found(broken_at=depth)
            named = isinstance(part, str) and "properties" in schema
            return Found(optional=optional, undeclared=named)
        optional = optional or part not in schema.get("required", (part,))
        schema = step
    return Found(schema=resolved(schema, root), optional=optional)


def resolved(schema: Any, root: Any) -> Json | None:
    """The schema behind local references; None when it says nothing that we understand."""
    for _ in range(_REF_DEPTH):
        if not isinstance(schema, Mapping):
            return None
        target = schema.get("$ref")
        if not isinstance(target, str):
            return schema
        schema = _local(root, target)
    return None


def types_of(schema: Json | None, root: Json | None) -> frozenset[str] | None:
    """The JSON types that a schema allows; None when it does not say."""
    schema = resolved(schema, root)
    if schema is None:
        return None
    if "const" in schema:
        return frozenset({type_name(schema["const"])})
    if isinstance(schema.get("enum"), list):
        return frozenset(type_name(value) for value in schema["enum"])
    declared = schema.get("type")
    if isinstance(declared, str):
        return frozenset({declared})
    if isinstance(declared, list):
        return frozenset(str(name) for name in declared)
    for keyword in ("anyOf", "oneOf"):
        if isinstance(schema.get(keyword), list):
            return _union(schema[keyword], root)
    return None


def type_name(value: Any) -> str:
    """The JSON type of a value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case str():
            return "string"
        case list() | tuple():
            return "array"
        case _:
            return "object"


def overlap(given: frozenset[str], wanted: frozenset[str]) -> bool:
    """Whether some value of the one kind is one of the other; an integer is a number."""
    if "number" in given or "number" in wanted:
        given = given | ({"number", "integer"} if given & {"number", "integer"} else set())
        wanted = wanted | ({"number", "integer"} if wanted & {"number", "integer"} else set())
    return bool(given & wanted)


def _union(schemas: list[Any], root: Json | None) -> frozenset[str] | None:
    found: frozenset[str] = frozenset()
    for schema in schemas:
        types = types_of(schema, root)
        if types is None:
            return None
        found |= types
    return found


def _is_plain(schema: Json) -> bool:
    """Whether the object's own keywords are all that decides about its properties."""
    combined = ("allOf", "anyOf", "oneOf", "if", "dependentSchemas", "patternProperties", "not")
    return not any(keyword in schema for keyword in combined)


def _child(schema: Json, part: str | int) -> Any:
    if isinstance(part, int):
        return schema.get("items")
    properties = schema.get("properties")
    return properties.get(part) if isinstance(properties, Mapping) else None


def _is_open(schema: Json, part: str | int) -> bool:
    declared = types_of(schema, schema)
    wanted = "array" if isinstance(part, int) else "object"
    if declared is not None and wanted not in declared:
        return False
    return isinstance(part, int) or schema.get("additionalProperties", True) is not False


def _local(root: Any, target: str) -> Any:
    if not target.startswith("#/"):
        return root if target == "#" else None
    value = root
    for part in target[2:].split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(value, Mapping) or name not in value:
            return None
        value = value[name]
    return value
