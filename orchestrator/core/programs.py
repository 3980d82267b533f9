"""One CEL text compiled once, evaluated over just what it names.

The library converts every value it is given (4 µs a small object), so an expression gets only
the paths that it names, and one that is nothing but a path is read without the library.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import cel

from orchestrator.core.cel_text import (
    ORDERED_MACROS,
    ExpressionError,
    Path,
    Survey,
    check_length,
    survey,
    tokens,
    unordered_words,
)
from orchestrator.core.errors import ConditionError
from orchestrator.core.problems import suggestion
from orchestrator.core.scopes import Missing, kind_of, pruned, reach, weight, without_longer

VISIBLE_NAMES = frozenset(
    {"input", "steps", "run", "trigger", "item", "index", "previous", "output"}
)
MAX_PRODUCT = 10_000_000
_NAMES_KEPT = 4096


class Program:
    """A compiled expression. Immutable and safe to share between threads.

    ``references`` are the step keys that it names, ``names`` the top-level names, ``paths`` all
    static paths (``("steps", "draft", "output", "text")``), ``tested`` those inside ``has()``.
    """

    __slots__ = ("_cut", "_program", "_survey", "names", "paths", "references", "tested", "text")

    def __init__(self, text: str, program: cel.Program, found: Survey) -> None:
        self.text = text
        self.paths = found.paths
        self.tested = found.tested
        self.names = frozenset(str(path[0]) for path in found.paths)
        self.references = frozenset(str(path[1]) for path in found.paths if path[0] == "steps")
        self._cut = without_longer(found.paths)
        self._program = program
        self._survey = found

    def __repr__(self) -> str:
        return f"Program({self.text!r})"

    @property
    def is_path(self) -> bool:
        """Whether it is nothing but a path without list positions, the only one of ``paths``."""
        return self._survey.only_path is not None and self._survey.only_path == self.paths[0]

    def evaluate(self, scope: Mapping[str, Any]) -> Any:
        """The value as plain JSON. ``scope`` maps the visible names to JSON (or lazy mappings).

        Raises ``ConditionError``; a missing key is an error that names the path, never null.
        """
        path = self._survey.only_path
        if path is None:
            return self._run(scope)
        try:
            return reach(scope, path)
        except Missing as missing:
            raise self._error(str(missing)) from None

    def evaluate_bool(self, scope: Mapping[str, Any]) -> bool:
        """The value of a condition; ``ConditionError`` when it is neither true nor false."""
        value = self.evaluate(scope)
        if value is True or value is False:
            return value
        raise self._error(
            f"the result is {kind_of(value)}, not true or false: write a comparison, e.g. x == 1"
        )

    def _run(self, scope: Mapping[str, Any]) -> Any:
        try:
            context = pruned(scope, self._cut)
        except Missing as missing:
            raise self._error(str(missing)) from None
        if self._survey.macros:
            self._check_macros(context)
        try:
            return _plain(self._program.execute(context))
        except ConditionError as error:
            raise self._error(str(error)) from None
        except Exception as error:  # the library raises nearly every built-in type
            raise self._error(self._words(error, scope)) from error

    def _check_macros(self, context: Mapping[str, Any]) -> None:
        """Refuse what would have no fixed order, or would multiply large data by large lists."""
        for macro in self._survey.macros:
            ordered = macro.name in ORDERED_MACROS and macro.over is not None
            if ordered and _is_object(context, macro.over or ()):
                raise self._error(unordered_words(macro.name))
        inside = sum(_weight_of(context, path) for path in self._survey.inside_macros)
        if inside > 1 and inside * weight(context) > MAX_PRODUCT:
            raise self._error("the data is too large for a macro that names all of it")

    def _words(self, error: Exception, scope: Mapping[str, Any]) -> str:
        if isinstance(error, KeyError):
            return self._missing_words(error, scope)
        first_line = str(error).split(". CEL does not coerce", maxsplit=1)[0].splitlines()[0]
        if isinstance(error, TypeError):
            return f"the types do not fit ({first_line}); convert with int(), double() or string()"
        return first_line

    def _missing_words(self, error: KeyError, scope: Mapping[str, Any]) -> str:
        for path in self.paths:
            try:
                reach(scope, path)
            except Missing as missing:
                if missing.key == error.args[0]:
                    return str(missing)
        return f"there is no key {error.args[0]!r}; test it with has(…) where it may be missing"

    def _error(self, words: str) -> ConditionError:
        return ConditionError(f"expression `{self.text}`: {words}")


def compile_expression(text: str, *, names: Iterable[str] | None = VISIBLE_NAMES) -> Program:
    """Compile a bare CEL text; equal texts share one program.

    ``names`` are the top-level names that may be used; None checks no names (a published
    document has been checked). Raises ``ExpressionError``: too long, does not parse, unknown
    function or name, too many or nested macros, or ``steps`` without a literal key.
    """
    return _compiled(text, None if names is None else frozenset(names))


@lru_cache(maxsize=_NAMES_KEPT)
def _compiled(text: str, names: frozenset[str] | None) -> Program:
    check_length(text)
    program = _parse(text)
    found = survey(text)
    _check_patterns(text)
    for path in found.paths:
        _check_path(path, names)
    return Program(text, program, found)


def _parse(text: str) -> cel.Program:
    try:
        return cel.compile(text)
    except ValueError as error:
        place = str(error).partition("ERROR: <input>:1:")[2] or str(error)
        column, _, reason = place.splitlines()[0].partition(": ")
        reason = reason.partition(" expecting ")[0]
        mend = "correct it."
        if "alternative at input '." in reason:
            mend = 'write a key that is a word of CEL in brackets, e.g. input["in"].'
        raise ExpressionError(
            "syntax", f"not valid CEL at character {column} ({reason}): {mend}"
        ) from None


def _check_path(path: Path, names: frozenset[str] | None) -> None:
    root = str(path[0])
    if names is not None and root not in names:
        raise ExpressionError(
            "unknown_name", f'"{root}" cannot be seen here: {suggestion(root, names)}'
        )
    if root == "steps" and (len(path) == 1 or not isinstance(path[1], str)):
        raise ExpressionError(
            "dynamic_step", "steps needs a step's key: write steps.<key>.output or .state."
        )


def _check_patterns(text: str) -> None:
    """Regular expressions that are written out must be valid (and of bounded size) at publish."""
    found = list(tokens(text))
    for call, bracket, pattern in zip(found, found[1:], found[2:], strict=False):
        if call.text != "matches" or bracket.text != "(" or pattern.kind != "string":
            continue
        try:
            cel.evaluate(f'"".matches({pattern.text})')
        except Exception as error:  # noqa: BLE001 - whatever it raises, the pattern is not usable
            reason = str(error).strip().splitlines()[-1].partition(". Check function")[0]
            raise ExpressionError(
                "bad_pattern", f"{pattern.text} is no usable pattern ({reason}): correct it."
            ) from None


def _is_object(context: Mapping[str, Any], path: Path) -> bool:
    try:
        return isinstance(reach(context, path), Mapping)
    except Missing:
        return False


def _weight_of(context: Mapping[str, Any], path: Path) -> int:
    try:
        return weight(reach(context, path))
    except Missing:
        return 0


def _plain(value: Any) -> Any:
    """The library's value as JSON: instants and durations become text, the rest must be JSON."""
    match value:
        case str():
            return _storable(value)
        case None | bool() | int():
            return value
        case float():
            return _finite(value)
        case list():
            return [_plain(item) for item in value]
        case dict():
            return {_text_key(key): _plain(item) for key, item in value.items()}
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case timedelta():
            return f"{value.total_seconds():.6f}".rstrip("0").rstrip(".") + "s"
        case _:
            raise ConditionError(f"the result ({type(value).__name__}) is not JSON")


def _finite(number: float) -> float:
    if math.isfinite(number):
        return number
    raise ConditionError("the result is not a finite number")


def _storable(text: str) -> str:
    if "\x00" in text:
        raise ConditionError("the result holds a NUL character, which cannot be stored")
    return text


def _text_key(key: Any) -> str:
    if isinstance(key, str):
        return _storable(key)
    raise ConditionError(f"the key {key!r} is not text: JSON keys are text; use string()")
