"""YAML 1.2 without anchors, aliases, tags and merge keys, read from the parser's events.

The parser only finds the structure; what a plain word means is decided here by the core schema
of YAML 1.2, so that a bare ``on`` or a date stays the text that it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from orchestrator.core.json_text import (
    MAX_DEPTH,
    Findings,
    TooMany,
    integer_problem,
    text_problem,
)
from orchestrator.core.problems import pointer_to

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_WORDS = {
    **dict.fromkeys(("null", "Null", "NULL", "~", "")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INT = re.compile(r"[-+]?[0-9]+", re.ASCII)
_OCTAL = re.compile(r"0o[0-7]+", re.ASCII)
_HEX = re.compile(r"0x[0-9a-fA-F]+", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_NO_NUMBER = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", re.ASCII)
_LONGEST_RADIX = 30


class YamlText:
    """One reading of a YAML text. After ``read``, ``findings`` hold problems and lines."""

    def __init__(self, text: str) -> None:
        self.findings = Findings()
        self._events: Iterator[Any] = yaml.parse(text, Loader=_LOADER)

    def read(self) -> Any:
        """The document as plain JSON; None with problems in ``findings`` when it is refused."""
        try:
            return self._document()
        except TooMany:
            return None
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = 1 if mark is None else mark.line + 1
            words = f"not valid YAML ({error.problem}): correct the text there."
            self.findings.stop("syntax", "", line, words)
        except yaml.YAMLError as error:
            reason = str(error).splitlines()[0]
            self.findings.stop("syntax", "", 1, f"not valid YAML ({reason}): remove it.")
        return None

    def _document(self) -> Any:
        next(self._events)
        event = next(self._events)
        if not isinstance(event, yaml.DocumentStartEvent):
            raise self.findings.stop("empty", "", 1, "there is nothing here: write a document.")
        if event.tags:
            self._add("tag", "", event, "%TAG is not supported: remove it.")
        value = self._node(next(self._events), "", 0)
        next(self._events)
        after = next(self._events)
        if not isinstance(after, yaml.StreamEndEvent):
            self._add("many_documents", "", after, "one document only: remove the others.")
        return value

    def _add(self, code: str, pointer: str, event: Any, message: str) -> None:
        self.findings.add(code, pointer, event.start_mark.line + 1, message)

    def _node(self, event: Any, pointer: str, depth: int) -> Any:
        self.findings.lines.setdefault(pointer, event.start_mark.line + 1)
        self._check_node(event, pointer)
        match event:
            case yaml.ScalarEvent():
                return self._scalar(event, pointer)
            case yaml.SequenceStartEvent():
                self._check_depth(event, pointer, depth)
                return self._sequence(pointer, depth + 1)
            case yaml.MappingStartEvent():
                self._check_depth(event, pointer, depth)
                return self._mapping(pointer, depth + 1)
            case _:
                return None

    def _check_node(self, event: Any, pointer: str) -> None:
        if isinstance(event, yaml.AliasEvent):
            self._add(
                "alias", pointer, event, f"*{str(event.anchor)[:60]}: no aliases; write it out."
            )
            return
        if event.anchor is not None:
            self._add("anchor", pointer, event, f"&{event.anchor[:60]}: no anchors; remove it.")
        if event.tag is not None:
            self._add("tag", pointer, event, f"{event.tag[:60]}: no tags; remove it.")

    def _check_depth(self, event: Any, pointer: str, depth: int) -> None:
        if depth >= MAX_DEPTH:
            raise self.findings.stop(
                "too_deep",
                pointer,
                event.start_mark.line + 1,
                f"deeper than {MAX_DEPTH} levels: make the document flatter.",
            )

    def _sequence(self, pointer: str, depth: int) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._node(event, pointer + pointer_to(len(items)), depth))
        return items

    def _mapping(self, pointer: str, depth: int) -> dict[str, Any]:
        value: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            name = self._key(event, pointer)
            child = pointer + pointer_to(name)
            if name in value:
                self._add(
                    "duplicate_key", child, event, f'"{name[:60]}" stands here twice: remove one.'
                )
            self.findings.lines.setdefault(child, event.start_mark.line + 1)
            value[name] = self._node(next(self._events), child, depth)
        return value

    def _key(self, event: Any, pointer: str) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            raise self.findings.stop(
                "bad_key",
                pointer,
                event.start_mark.line + 1,
                "a key must be a plain word or text, no list, object or alias: write a text.",
            )
        self._check_node(event, pointer)
        if event.implicit[0] and event.value == "<<":
            self._add("merge_key", pointer, event, "<<: no merge keys; write the keys out.")
        found = text_problem(event.value)
        if found is not None:
            self._add(found[0], pointer, event, found[1])
        return str(event.value)

    def _scalar(self, event: Any, pointer: str) -> Any:
        text: str = event.value
        found = text_problem(text)
        value: Any = text
        if event.implicit[0] and found is None:
            value, found = _plain_value(text)
        if found is not None:
            self._add(found[0], pointer, event, found[1])
        return value


def reads_as_text(text: str) -> bool:
    """Whether a plain word (without quotes) is read as just this text."""
    value, found = _plain_value(text)
    return found is None and value == text and isinstance(value, str)


def _plain_value(text: str) -> tuple[Any, tuple[str, str] | None]:
    """A plain word by the core schema of YAML 1.2, and what is wrong with it."""
    if text in _WORDS:
        return _WORDS[text], None
    if _INT.fullmatch(text):
        found = integer_problem(text)
        return (None, found) if found else (int(text), None)
    if _OCTAL.fullmatch(text) or _HEX.fullmatch(text):
        number = str(int(text, 0)) if len(text) < _LONGEST_RADIX else "9" * _LONGEST_RADIX
        found = integer_problem(number)
        return (None, found) if found else (int(number), None)
    if _NO_NUMBER.fullmatch(text):
        return None, ("not_a_number", f"{text[:40]} is not JSON: write a finite number or null.")
    if _FLOAT.fullmatch(text):
        return _float_value(text)
    return text, None


def _float_value(text: str) -> tuple[Any, tuple[str, str] | None]:
    value = float(text)
    if abs(value) == float("inf"):
        return None, ("not_a_number", f"{text[:40]} is too large: write a smaller number.")
    return value, None
