"""Text at the door: strict JSON and YAML to plain values, with the line of every pointer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from orchestrator.core.json_text import (
    MAX_DEPTH,
    JsonText,
    integer_problem,
    text_problem,
)
from orchestrator.core.problems import Problem
from orchestrator.core.yaml_text import YamlText

MAX_BYTES = 1024 * 1024

_ODD_ESCAPE = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")


class SourceError(ValueError):
    """The text is refused; ``problems`` are all that could be found at once, never empty."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(problem.message for problem in problems[:3]))
        self.problems = problems


class Loaded:
    """What was read: ``value`` is plain JSON, ``line`` finds the way back into the text."""

    def __init__(self, value: Any, lines: Callable[[], dict[str, int]]) -> None:
        self.value = value
        self._find_lines = lines
        self._lines: dict[str, int] | None = None

    def line(self, pointer: str) -> int | None:
        """The line (from 1) where the value of a JSON pointer, or its key, stands."""
        if self._lines is None:
            self._lines = self._find_lines()
        return self._lines.get(pointer)


def load_json(data: bytes) -> Loaded:
    """Read a JSON document; raises ``SourceError`` with all problems.

    At most 1 MiB and 64 levels; no duplicate keys, NaN, Infinity, NUL or half characters;
    integers exact to 64 bits.
    """
    text = _decode(data)
    return Loaded(_strict_json(text), lambda: JsonText(text).read().lines)


def load_yaml(data: bytes) -> Loaded:
    """Read a YAML 1.2 document (or its JSON face); bounds and errors as ``load_json``.

    Without anchors, aliases, tags and merge keys; words mean what YAML 1.2 says: a bare ``on``
    or a date is text.
    """
    text = _decode(data)
    if text.lstrip()[:1] in ("{", "["):
        try:
            return Loaded(_strict_json(text), lambda: JsonText(text).read().lines)
        except SourceError:
            pass  # flow style of YAML also begins like this; the YAML reader says what is wrong
    reader = YamlText(text)
    value = reader.read()
    if reader.findings.problems:
        raise SourceError(reader.findings.problems)
    lines = reader.findings.lines
    return Loaded(value, lambda: lines)


def parse_json_body(data: bytes) -> Any:
    """The plain value of a request's JSON body, as strict as a document; ``SourceError``."""
    return _strict_json(_decode(data))


def _decode(data: bytes) -> str:
    if len(data) > MAX_BYTES:
        raise _refused("too_large", f"{len(data)} bytes: at most {MAX_BYTES} (1 MiB); shorten it.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _refused("encoding", "not UTF-8 here: save the text as UTF-8.", line) from None


def _refused(code: str, message: str, line: int | None = None) -> SourceError:
    return SourceError([Problem("error", code, "", line, message)])


class _OddError(ValueError):
    """The library would accept what we refuse; the slow reader says what it is."""


def _strict_json(text: str) -> Any:
    try:
        value = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_int=_exact,
            parse_float=_finite,
            parse_constant=_no_constant,
        )
        _check_depth(text, value)
        _check_texts(text, value)
    except (ValueError, RecursionError):
        problems = JsonText(text).read().problems
        raise SourceError(problems) from None
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _OddError
    return value


def _exact(digits: str) -> int:
    if integer_problem(digits):
        raise _OddError
    return int(digits)


def _finite(digits: str) -> float:
    value = float(digits)
    if abs(value) == float("inf"):
        raise _OddError
    return value


def _no_constant(_word: str) -> Any:
    raise _OddError


def _check_depth(text: str, value: Any) -> None:
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    level, depth = [value], 0
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        if depth > MAX_DEPTH:
            raise _OddError
        level = [child for item in level for child in _children(item)]


def _check_texts(text: str, value: Any) -> None:
    """Look at the texts only when an escape could have made a bad one."""
    if not _ODD_ESCAPE.search(text):
        return
    rest = [value]
    while rest:
        item = rest.pop()
        if isinstance(item, str) and text_problem(item):
            raise _OddError
        if isinstance(item, dict):
            rest.extend(item)
        if isinstance(item, dict | list):
            rest.extend(_children(item))


def _children(item: Any) -> list[Any]:
    return list(item.values()) if isinstance(item, dict) else item
