"""A document as the Python that writes it: the way from YAML, or the visual builder, to code."""

from __future__ import annotations

import json
import keyword
from collections.abc import Iterator, Mapping
from typing import Any

_WIDTH = 96
_INDENT = "    "
_FIRST = {"agent": "model", "tool": "tool", "sub_workflow": "workflow"}
_LINKS = ("needs", "fallback")


def to_python(value: Mapping[str, Any]) -> str:
    """A module whose ``flow`` has the canonical bytes of ``value``, a document of valid shape.

    Expressions stay the texts that they are; steps that others need get names.
    """
    steps: Mapping[str, Any] = value["steps"]
    top = {k: v for k, v in value.items() if k not in ("schema", "name", "steps", "output")}
    named = _needed(steps)
    lines = [f'"""The workflow {value["name"]}."""', ""]
    lines += ["from orchestrator.authoring import Workflow", ""]
    lines += ["flow = " + _call("Workflow", [_literal(value["name"], 1)], _arguments(top))]
    known: dict[str, str] = {}
    for key, block in steps.items():
        lines.append("")
        lines.append(_step(key, block, known, named=key in named))
        known[key] = _variable(key)
    if "output" in value:
        lines += ["", f"flow.returns({_literal(value['output'], 0)})"]
    return "\n".join(lines) + "\n"


def _needed(steps: Mapping[str, Any]) -> set[str]:
    """The steps that a later one names as need or fallback."""
    seen: set[str] = set()
    needed: set[str] = set()
    for key, block in steps.items():
        links = [*block.get("needs", ()), block.get("fallback")]
        needed |= {link for link in map(_linked, links) if link in seen}
        seen.add(key)
    return needed


def _linked(link: Any) -> Any:
    return link.get("step") if isinstance(link, Mapping) else link


def _step(key: str, block: Mapping[str, Any], known: Mapping[str, str], *, named: bool) -> str:
    kind = block["type"]
    first = _FIRST.get(kind)
    given = [_literal(key, 1)]
    if first is not None:
        given.append(_literal(block[first], 1))
    rest = {name: each for name, each in block.items() if name not in ("type", first)}
    call = _call(f"flow.{kind}", given, _arguments(rest, known))
    return f"{_variable(key)} = {call}" if named else call


def _variable(key: str) -> str:
    taken = keyword.iskeyword(key) or key in ("flow", "input", "type")
    return f"{key}_" if taken else key


def _arguments(block: Mapping[str, Any], known: Mapping[str, str] | None = None) -> list[str]:
    return [
        f"{f'{name}_' if keyword.iskeyword(name) else name}={_argument(name, each, known or {})}"
        for name, each in block.items()
    ]


def _argument(name: str, value: Any, known: Mapping[str, str]) -> str:
    if name == "needs":
        links = [_link(each, known) for each in value]
        return _bracketed("[", links, "]", 1)
    if name in _LINKS:
        return known.get(value) or _literal(value, 1)
    return _literal(value, 1)


def _link(value: Any, known: Mapping[str, str]) -> str:
    if isinstance(value, str):
        return known.get(value) or _literal(value, 2)
    return _literal(value, 2)


def _call(name: str, given: list[str], arguments: list[str]) -> str:
    parts = [*given, *arguments]
    line = f"{name}({', '.join(parts)})"
    if len(line) <= _WIDTH and "\n" not in line and len(arguments) < 3:
        return line
    return "\n".join([f"{name}(", *(f"{_INDENT}{part}," for part in parts), ")"])


def _literal(value: Any, level: int) -> str:
    match value:
        case str():
            return _text(value, level)
        case Mapping():
            pairs = [f"{_quoted(key)}: {_literal(each, level + 1)}" for key, each in value.items()]
            return _bracketed("{", pairs, "}", level)
        case list():
            return _bracketed("[", [_literal(each, level + 1) for each in value], "]", level)
        case _:
            return repr(value)


def _bracketed(opening: str, parts: list[str], closing: str, level: int) -> str:
    line = f"{opening}{', '.join(parts)}{closing}"
    if "\n" not in line and len(line) + level * len(_INDENT) < _WIDTH - 16:
        return line
    inner = _INDENT * (level + 1)
    return "\n".join([opening, *(f"{inner}{part}," for part in parts), _INDENT * level + closing])


def _text(value: str, level: int) -> str:
    pieces = list(_pieces(value))
    if len(pieces) < 2:
        return _quoted(value)
    inner = _INDENT * (level + 1)
    lines = [f"{inner}{_quoted(piece)}" for piece in pieces]
    return "\n".join(["(", *lines, f"{_INDENT * level})"])


def _pieces(value: str) -> Iterator[str]:
    """The lines of a text, and long lines at their spaces."""
    for line in value.splitlines(keepends=True) if "\n" in value else [value]:
        rest = line
        while len(rest) > _WIDTH - 16 and (cut := rest.rfind(" ", 1, _WIDTH - 20)) > 0:
            yield rest[: cut + 1]
            rest = rest[cut + 1 :]
        yield rest


def _quoted(text: str) -> str:
    """A literal in double quotes: JSON's escapes mean the same in Python."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\x7f")
