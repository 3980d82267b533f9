"""What a CEL text names and does, read from its tokens, and the bounds that it must keep.

The CEL library shows no syntax tree; its grammar is small enough to see names, paths and macros
in the tokens. The text has already been parsed by the library when it is surveyed here, so the
brackets are known to match.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from orchestrator.core.problems import suggestion

MAX_BYTES = 2048
MAX_MACROS = 2
MAX_TOKENS = 600
MAX_BOUND_USES = 16

MACROS = frozenset({"all", "exists", "exists_one", "existsOne", "filter", "map"})
ORDERED_MACROS = frozenset({"filter", "map"})
FUNCTIONS = frozenset(
    {
        *("contains", "startsWith", "endsWith", "matches", "size", "has"),
        *("int", "uint", "double", "string", "bytes", "dyn", "type", "timestamp", "duration"),
        *("getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear"),
        *("getHours", "getMinutes", "getSeconds", "getMilliseconds"),
    }
)
_WORDS = frozenset({"true", "false", "null", "in"})

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
      |(?P<string>[rRbB]{0,2}(?:\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}
          |"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
      |(?P<number>0[xX][0-9a-fA-F]+[uU]?|(?:[0-9]+\.[0-9]+|\.[0-9]+|[0-9]+)(?:[eE][+-]?[0-9]+)?[uU]?)
      |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
      |(?P<mark>&&|\|\||[=!<>]=|[-+*/%<>!?:.,()\[\]{}])""",
    re.VERBOSE | re.DOTALL,
)
_PLAIN_STRING = re.compile(r"""(?:"[^"\\]*"|'[^'\\]*')""")

Path = tuple[str | int, ...]


class ExpressionError(ValueError):
    """A text is no acceptable expression; ``code`` is stable, the message says how to mend it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Token(NamedTuple):
    """One token: its kind (string, number, name, mark), its text and where it begins."""

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        """The place behind the token."""
        return self.start + len(self.text)


@dataclass(frozen=True, slots=True)
class Macro:
    """One ``list.map(x, …)``: where its brackets are, what it binds, what it runs over.

    ``over`` is the receiver when it is a plain path, else None.
    """

    name: str
    bound: str
    first: int
    last: int
    over: Path | None


@dataclass(frozen=True, slots=True)
class Survey:
    """What a text names: all its ``paths``, and ``only_path`` when the text is just that.

    ``inside_macros`` are those of ``paths`` that are evaluated once per element of a list;
    ``tested`` those that ``has()`` asks for, which may therefore be missing.
    """

    paths: tuple[Path, ...]
    only_path: Path | None
    macros: tuple[Macro, ...]
    inside_macros: tuple[Path, ...]
    tested: tuple[Path, ...]


class _Reference(NamedTuple):
    path: Path
    first: int
    last: int


def tokens(text: str, start: int = 0) -> Iterator[Token]:
    """The tokens from ``start`` on, spaces and comments left out.

    Raises ``ExpressionError`` where no token begins (CEL has none of ``@ # ` ;``).
    """
    while start < len(text):
        match = _TOKEN.match(text, start)
        if match is None or match.lastgroup is None:
            raise ExpressionError(
                "syntax", f"no CEL token begins at {text[start : start + 12]!r}: correct it."
            )
        if match.lastgroup != "space":
            yield Token(match.lastgroup, match[0], start)
        start = match.end()


def shown_path(path: Path) -> str:
    """``("steps", "a", "output", 0)`` as ``steps.a.output[0]``."""
    text = str(path[0])
    for part in path[1:]:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if part.isidentifier() else f'["{part}"]'
    return text


def check_length(text: str) -> None:
    """Refuse what is too long before the library parses it: it recurses on the machine's stack."""
    size = len(text.encode("utf-8", "replace"))
    if size > MAX_BYTES:
        raise ExpressionError(
            "too_long",
            f"the expression has {size} bytes: at most {MAX_BYTES}; split it over two steps.",
        )
    count = sum(1 for _ in tokens(text))
    if count > MAX_TOKENS:
        raise ExpressionError(
            "too_complex",
            f"the expression has {count} parts: at most {MAX_TOKENS}; split it over two steps.",
        )


def survey(text: str) -> Survey:
    """Names, paths and macros of a text that parses; ``ExpressionError`` when out of bounds."""
    found = list(tokens(text))
    macros = tuple(_macros(found))
    _check_macros(macros)
    references = list(_references(found, macros))
    inside = [r for m in macros for r in references if m.first < r.first < m.last]
    tested = [r for r in references if _text_at(found, r.first - 2) == "has"]
    return Survey(
        paths=_distinct(references),
        only_path=references[0].path if _is_whole(references, found) else None,
        macros=macros,
        inside_macros=_distinct(inside),
        tested=_distinct(tested),
    )


def _distinct(references: list[_Reference]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(_upto_index(reference.path) for reference in references))


def _upto_index(path: Path) -> Path:
    for depth, part in enumerate(path):
        if isinstance(part, int):
            return path[:depth]
    return path


def _is_whole(references: list[_Reference], found: list[Token]) -> bool:
    return len(references) == 1 and (references[0].first, references[0].last) == (
        0,
        len(found) - 1,
    )


def _text_at(found: list[Token], index: int) -> str:
    return found[index].text if 0 <= index < len(found) else ""


def _macros(found: list[Token]) -> Iterator[Macro]:
    for index, token in enumerate(found):
        is_call = token.kind == "name" and _text_at(found, index + 1) == "("
        if not is_call:
            continue
        if token.text in MACROS and _text_at(found, index - 1) == ".":
            yield _macro(found, index)
        elif token.text not in FUNCTIONS:
            known = suggestion(token.text, FUNCTIONS | MACROS, limit=30)
            raise ExpressionError(
                "unknown_function", f"there is no function {token.text}(): {known}"
            )


def _macro(found: list[Token], index: int) -> Macro:
    name = found[index].text
    bound = found[index + 2]
    if bound.kind != "name" or _text_at(found, index + 3) != ",":
        raise ExpressionError(
            "syntax", f"{name}() needs a name first: write list.{name}(x, …) over x."
        )
    if name in ORDERED_MACROS and _text_at(found, index - 2) == "}":
        raise ExpressionError("unordered", unordered_words(name))
    last = _closing(found, index + 1)
    uses = sum(token.text == bound.text for token in found[index + 3 : last])
    if uses > MAX_BOUND_USES:
        raise ExpressionError(
            "too_complex",
            f"{name}() uses {bound.text} {uses} times: at most {MAX_BOUND_USES}; "
            "split the expression over two steps.",
        )
    return Macro(name, bound.text, index + 1, last, _receiver(found, index - 1))


def unordered_words(name: str) -> str:
    """Why ``map`` and ``filter`` refuse an object: its keys would come in no fixed order."""
    return f"{name}() over an object has no fixed order: run it over a list, or use exists()/all()."


def _closing(found: list[Token], opening: int) -> int:
    depth = 0
    for index in range(opening, len(found)):
        if found[index].text in ("(", "[", "{") and found[index].kind == "mark":
            depth += 1
        elif found[index].text in (")", "]", "}") and found[index].kind == "mark":
            depth -= 1
            if depth == 0:
                return index
    raise ExpressionError("syntax", "a bracket is not closed: close it.")


def _receiver(found: list[Token], dot: int) -> Path | None:
    """The plain path that ends just before the dot, when the receiver is one."""
    for first in range(dot - 1, -1, -1):
        if _begins_path(found, first):
            reference = _path_from(found, first)
            return reference.path if reference.last == dot - 1 else None
        if found[first].text in (")", "}"):
            return None
    return None


def _check_macros(macros: tuple[Macro, ...]) -> None:
    if len(macros) > MAX_MACROS:
        raise ExpressionError(
            "too_complex",
            f"{len(macros)} macros: at most {MAX_MACROS}; split the expression over two steps.",
        )
    for outer in macros:
        if any(outer.first < inner.first < outer.last for inner in macros):
            raise ExpressionError(
                "nested_macro",
                f"a macro stands inside {outer.name}(): macros may not be nested; compute the "
                "inner list in a step before.",
            )


def _begins_path(found: list[Token], index: int) -> bool:
    token = found[index]
    if token.kind != "name" or token.text in _WORDS or _text_at(found, index + 1) == "(":
        return False
    return _text_at(found, index - 1) != "."


def _path_from(found: list[Token], first: int) -> _Reference:
    """The longest plain path that begins here: ``.name``, ``["name"]`` and ``[0]`` steps."""
    path: list[str | int] = [found[first].text]
    index = first + 1
    while True:
        step: str | int | None = _dotted(found, index)
        width = 2
        if step is None:
            step, width = _bracketed(found, index), 3
        if step is None:
            return _Reference(tuple(path), first, index - 1)
        path.append(step)
        index += width


def _dotted(found: list[Token], index: int) -> str | None:
    if _text_at(found, index) != "." or _text_at(found, index + 2) == "(":
        return None
    return _text_at(found, index + 1)


def _bracketed(found: list[Token], index: int) -> str | int | None:
    if _text_at(found, index) != "[" or _text_at(found, index + 2) != "]":
        return None
    token = found[index + 1]
    if token.kind == "string" and _PLAIN_STRING.fullmatch(token.text):
        return token.text[1:-1]
    if token.kind == "number" and token.text.isdecimal():
        return int(token.text)
    return None


def _references(found: list[Token], macros: tuple[Macro, ...]) -> Iterator[_Reference]:
    for index, token in enumerate(found):
        _refuse_odd_names(found, index)
        if _begins_path(found, index) and not _is_bound(token.text, index, macros):
            yield _path_from(found, index)


def _is_bound(name: str, index: int, macros: tuple[Macro, ...]) -> bool:
    return any(macro.first < index < macro.last and macro.bound == name for macro in macros)


def _refuse_odd_names(found: list[Token], index: int) -> None:
    """Refuse what the grammar knows and documents have no use for: ``.name`` and ``Type{…}``."""
    token, before = found[index], found[index - 1] if index else None
    if token.kind == "mark" and token.text == ".":
        if before is None or (before.kind == "mark" and before.text not in (")", "]", "}")):
            raise ExpressionError("syntax", "a name may not begin with a dot: remove the dot.")
    elif token.kind == "name" and token.text not in _WORDS and _text_at(found, index + 1) == "{":
        raise ExpressionError("syntax", f"{token.text}{{…}} is no value: write {{…}} alone.")
