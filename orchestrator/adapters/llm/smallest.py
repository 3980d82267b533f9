"""The smallest value that a JSON Schema allows; best effort where patterns are in the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_MAX_DEPTH = 32

_FORMATS: Mapping[str, str] = {
    "date": "1970-01-01",
    "date-time": "1970-01-01T00:00:00Z",
    "duration": "PT0S",
    "email": "a@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "time": "00:00:00Z",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-0000-0000-000000000000",
}


def smallest_instance(schema: Mapping[str, Any]) -> Any:
    """The smallest instance: first enum value, minimum, empty string, required properties only."""
    return _smallest(schema, root=schema, depth=0, fallback={})


def _smallest(schema: Any, *, root: Mapping[str, Any], depth: int, fallback: Any = None) -> Any:
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return fallback
    schema = _resolved(schema, root=root)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    builder = _BUILDERS.get(_type_of(schema))
    if builder is None:
        return fallback
    return builder(schema, root, depth + 1)


def _resolved(schema: Mapping[str, Any], *, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema with its ``$ref``, every ``allOf`` and its first alternative folded in."""
    merged = dict(schema)
    for _ in range(_MAX_DEPTH):
        parts = _folded_parts(merged, root=root)
        if not parts:
            break
        for part in parts:
            merged = _merge(part, merged)
    return merged


def _folded_parts(merged: dict[str, Any], *, root: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    parts = []
    if "$ref" in merged:
        parts.append(_at(root, str(merged.pop("$ref"))))
    parts.extend(merged.pop("allOf", []))
    for alternatives in ("anyOf", "oneOf"):
        parts.extend(merged.pop(alternatives, [])[:1])
    return [part for part in parts if isinstance(part, Mapping)]


def _merge(under: Mapping[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = {**under, **over}
    if "properties" in under and "properties" in over:
        merged["properties"] = {**under["properties"], **over["properties"]}
    if "required" in under and "required" in over:
        merged["required"] = list(dict.fromkeys([*under["required"], *over["required"]]))
    return merged


def _at(root: Mapping[str, Any], reference: str) -> Any:
    node: Any = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        if not part:
            continue
        key = part.replace("~1", "/").replace("~0", "~")
        node = node.get(key, {}) if isinstance(node, Mapping) else {}
    return node


def _type_of(schema: Mapping[str, Any]) -> str:
    declared = schema.get("type")
    if isinstance(declared, list):
        declared = declared[0] if declared else None
    if isinstance(declared, str):
        return declared
    for keyword, kind in (("properties", "object"), ("required", "object"), ("items", "array")):
        if keyword in schema:
            return kind
    if {"minLength", "pattern", "format"} & schema.keys():
        return "string"
    return "number" if {"minimum", "maximum"} & schema.keys() else ""


def _object(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    properties = schema.get("properties", {})
    return {
        name: _smallest(properties.get(name, {}), root=root, depth=depth)
        for name in schema.get("required", [])
    }


def _array(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> list[Any]:
    wanted = schema.get("minItems", 0)
    prefix = schema.get("prefixItems", [])[:wanted]
    items = [_smallest(each, root=root, depth=depth) for each in prefix]
    rest = schema.get("items", {})
    return items + [_smallest(rest, root=root, depth=depth) for _ in range(wanted - len(items))]


def _string(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    del root, depth
    text = _FORMATS.get(schema.get("format", ""), "")
    return text.ljust(schema.get("minLength", 0), "x")


def _number(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> float:
    del root, depth
    lowest = schema.get("minimum", 0)
    if "exclusiveMinimum" in schema:
        lowest = max(lowest, schema["exclusiveMinimum"] + 1)
        if "maximum" in schema:
            lowest = min(lowest, (schema["exclusiveMinimum"] + schema["maximum"]) / 2)
    return _below(schema, lowest)


def _integer(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> int:
    del root, depth
    lowest = -int(-schema.get("minimum", 0) // 1)
    if "exclusiveMinimum" in schema:
        lowest = max(lowest, int(schema["exclusiveMinimum"] // 1) + 1)
    return int(_below(schema, lowest))


def _below(schema: Mapping[str, Any], lowest: float) -> float:
    if "minimum" not in schema and "exclusiveMinimum" not in schema:
        lowest = min(lowest, schema.get("maximum", lowest))
        if "exclusiveMaximum" in schema:
            lowest = min(lowest, schema["exclusiveMaximum"] - 1)
    step = schema.get("multipleOf")
    return -(-lowest // step) * step if step else lowest


def _null(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> None:
    del schema, root, depth


def _boolean(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> bool:
    del schema, root, depth
    return False


_BUILDERS: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any], int], Any]] = {
    "object": _object,
    "array": _array,
    "string": _string,
    "number": _number,
    "integer": _integer,
    "boolean": _boolean,
    "null": _null,
}
