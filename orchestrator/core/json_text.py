"""A strict JSON reader that knows where everything stands and lists all that is wrong.

Slower than the library's (about 1 µs a token): it runs only when the library refused the text,
or when somebody asks for a line.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable

from orchestrator.core.problems import Problem, pointer_to

MAX_DEPTH = 64
MAX_PROBLEMS = 100
INT_MIN = -(2**63)
INT_MAX = 2**64 - 1

_TOKEN = re.compile(
    r"""[ \t\n\r]*(?:(?P<string>"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*")
      |(?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)
      |(?P<word>-?[A-Za-z]+)
      |(?P<mark>[\[\]{},:]))""",
    re.VERBOSE,
)
_BAD_TEXT = re.compile("[\x00\ud800-\udfff]")
_HALF = re.compile("[\ud800-\udfff]")
_LONGEST_INT = 25
_LONGEST_POINTER = 1000


def text_problem(text: str) -> tuple[str, str] | None:
    """Code and message when a text holds what neither JSON databases nor UTF-8 can carry."""
    match = _BAD_TEXT.search(text)
    if match is None:
        return None
    if match[0] == "\x00":
        return "nul", "the text holds a NUL character: remove it."
    return "lone_surrogate", f"\\u{ord(match[0]):04x} is half a character: write both halves."


def integer_problem(digits: str) -> tuple[str, str] | None:
    """Code and message when an integer cannot be kept exactly in 64 bits."""
    if len(digits) <= _LONGEST_INT and INT_MIN <= int(digits) <= INT_MAX:
        return None
    return "integer_range", "integers are exact to 64 bits, this one is larger: write it as text."


class TooMany(Exception):
    """There is no use in reading on; the problems found so far say why."""


class Findings:
    """The problems met while reading, at most 100, and the line of each pointer."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.lines: dict[str, int] = {}

    def add(self, code: str, pointer: str, line: int, message: str) -> None:
        """Note a problem; ``TooMany`` when the list is full."""
        self._append(code, pointer, line, message)
        if len(self.problems) >= MAX_PROBLEMS:
            raise TooMany

    def stop(self, code: str, pointer: str, line: int, message: str) -> TooMany:
        """Note a problem behind which nothing can be read; raise what is returned."""
        self._append(code, pointer, line, message)
        return TooMany()

    def _append(self, code: str, pointer: str, line: int, message: str) -> None:
        # A hostile key may be a megabyte long; an answer of a hundred problems may not.
        clipped = pointer if len(pointer) <= _LONGEST_POINTER else pointer[:_LONGEST_POINTER] + "…"
        self.problems.append(Problem("error", code, _whole(clipped), line, _whole(message)))


def _whole(text: str) -> str:
    """The text as UTF-8 can carry it: what names a half character must not hold one itself."""
    return _HALF.sub("\N{REPLACEMENT CHARACTER}", text)


class JsonText:
    """One reading of a JSON text. After ``read``, ``findings`` hold problems and lines."""

    def __init__(self, text: str) -> None:
        self.findings = Findings()
        self._text = text
        self._position = 0
        self._newlines = [match.start() for match in re.finditer("\n", text)]
        self._readers: dict[str, Callable[[str, int], None]] = {
            "[": self._array,
            "{": self._object,
        }

    def read(self) -> Findings:
        """Read all of the text; never raises."""
        try:
            self._value("", 0)
            rest = self._text[self._position :].strip(" \t\n\r")
            if rest:
                raise self._syntax("", f"{rest[:12]!r} stands behind the end: remove it.")
        except TooMany:
            pass
        return self.findings

    def _line(self) -> int:
        return bisect_right(self._newlines, self._position) + 1

    def _syntax(self, pointer: str, message: str) -> TooMany:
        return self.findings.stop("syntax", pointer, self._line(), f"not valid JSON: {message}")

    def _next(self, pointer: str) -> tuple[str, str]:
        match = _TOKEN.match(self._text, self._position)
        if match is None or match.lastgroup is None:
            space = re.compile(r"[ \t\n\r]*").match(self._text, self._position)
            self._position = space.end() if space else self._position
            found = self._text[self._position : self._position + 12]
            raise self._syntax(
                pointer,
                f"nothing can be read at {found!r}: correct the text there."
                if found
                else "the text ends too early: close what is open.",
            )
        self._position = match.start(match.lastgroup)
        token = match[match.lastgroup]
        if token not in ("[", "{"):
            self.findings.lines.setdefault(pointer, self._line())
        self._check(match.lastgroup, token, pointer)
        self._position = match.end()
        return match.lastgroup, token

    def _check(self, kind: str, token: str, pointer: str) -> None:
        found: tuple[str, str] | None = None
        if kind == "string":
            found = text_problem(json.loads(token))
        elif kind == "number":
            found = _number_problem(token)
        elif kind == "word" and token not in ("true", "false", "null"):
            if token not in ("NaN", "Infinity", "-Infinity"):
                raise self._syntax(pointer, f"{token[:40]!r} needs quotes: write it as text.")
            found = ("not_a_number", f"{token} is not JSON: write a finite number or null.")
        if found is not None:
            self.findings.add(found[0], pointer, self._line(), found[1])

    def _value(self, pointer: str, depth: int) -> None:
        kind, token = self._next(pointer)
        if kind != "mark":
            return
        reader = self._readers.get(token)
        if reader is None:
            self._position -= 1
            raise self._syntax(pointer, f"a value is missing before {token!r}: write one.")
        self.findings.lines.setdefault(pointer, self._line())
        if depth >= MAX_DEPTH:
            raise self.findings.stop(
                "too_deep",
                pointer,
                self._line(),
                f"deeper than {MAX_DEPTH} levels: make the document flatter.",
            )
        reader(pointer, depth + 1)

    def _peek(self) -> str:
        match = _TOKEN.match(self._text, self._position)
        return "" if match is None or match.lastgroup is None else match[match.lastgroup]

    def _array(self, pointer: str, depth: int) -> None:
        if self._peek() == "]":
            self._next(pointer)
            return
        index = 0
        while True:
            self._value(pointer + pointer_to(index), depth)
            index += 1
            if self._separator(pointer, "]"):
                return

    def _object(self, pointer: str, depth: int) -> None:
        if self._peek() == "}":
            self._next(pointer)
            return
        seen: set[str] = set()
        while True:
            child = self._key(pointer, seen)
            if self._next(child)[1] != ":":
                raise self._syntax(child, "a colon is missing behind the key: write one.")
            self._value(child, depth)
            if self._separator(pointer, "}"):
                return

    def _key(self, pointer: str, seen: set[str]) -> str:
        token = self._peek()
        if not token.startswith('"'):
            if token:
                raise self._syntax(pointer, f"{token[:40]!r} is no key: write a text in quotes.")
            self._next(pointer)
        name: str = json.loads(token)
        child = pointer + pointer_to(name)
        self._next(child)
        if name in seen:
            self.findings.add(
                "duplicate_key",
                child,
                self._line(),
                f'"{name[:60]}" stands here twice: remove one.',
            )
        seen.add(name)
        return child

    def _separator(self, pointer: str, end: str) -> bool:
        token = self._next(pointer)[1]
        if token not in (",", end):
            raise self._syntax(pointer, f"a comma or {end!r} is missing: write it.")
        return token == end


def _number_problem(token: str) -> tuple[str, str] | None:
    if not any(mark in token for mark in ".eE"):
        return integer_problem(token)
    if abs(float(token)) == float("inf"):
        return "not_a_number", f"{token[:40]} is too large for a number: write a smaller one."
    return None
