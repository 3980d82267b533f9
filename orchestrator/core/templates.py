"""JSON with ``${{ CEL }}`` in its texts, compiled once and rendered with a run's values.

Only the document's own texts are templates: a value that was put in is never looked at again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from orchestrator.core.cel_text import ExpressionError, Path, tokens
from orchestrator.core.problems import pointer_to
from orchestrator.core.programs import VISIBLE_NAMES, Program, compile_expression

_OPEN = "${{"
_Render = Callable[[Mapping[str, Any]], Any]


class Template:
    """A compiled template. ``programs`` are its expressions, in the order of the texts.

    ``references`` (step keys), ``names`` and ``paths`` are those of all expressions together;
    ``is_single`` when the whole is one ``${{ }}``, so that it keeps the value's type.
    """

    __slots__ = ("_render", "is_single", "names", "paths", "programs", "references")

    def __init__(
        self, render: _Render, programs: tuple[Program, ...], *, is_single: bool = False
    ) -> None:
        self._render = render
        self.is_single = is_single
        self.programs = programs
        self.references = frozenset[str]().union(*(program.references for program in programs))
        self.names = frozenset[str]().union(*(program.names for program in programs))
        self.paths: tuple[Path, ...] = tuple(
            dict.fromkeys(path for program in programs for path in program.paths)
        )

    @property
    def is_constant(self) -> bool:
        """Whether it has no expression, and so renders the same each time."""
        return not self.programs

    def render(self, scope: Mapping[str, Any]) -> Any:
        """The JSON with every expression's value in its place; raises ``ConditionError``.

        A text that is one ``${{ }}`` gives the value itself; within text, values other than
        strings appear as compact JSON. Objects and lists of the template are new each time.
        """
        return self._render(scope)


def compile_template(value: Any, *, names: Iterable[str] | None = VISIBLE_NAMES) -> Template:
    """Compile JSON with ``${{ }}``; raises ``ExpressionError`` at the first text that is wrong.

    ``names`` as in ``compile_expression``.
    """
    allowed = None if names is None else frozenset(names)
    programs: list[Program] = []
    render = _compile(value, allowed, programs)
    is_single = len(programs) == 1 and render == programs[0].evaluate
    return Template(render, tuple(programs), is_single=is_single)


def template_texts(value: Any, pointer: str = "") -> Iterator[tuple[str, str]]:
    """Every text in the JSON that holds ``${{``, with its pointer; keys of objects included."""
    match value:
        case str():
            if _OPEN in value:
                yield pointer, value
        case list():
            for index, item in enumerate(value):
                yield from template_texts(item, pointer + pointer_to(index))
        case Mapping():
            for key, item in value.items():
                if _OPEN in key:
                    yield pointer + pointer_to(key), key
                yield from template_texts(item, pointer + pointer_to(key))
        case _:
            return


def _compile(value: Any, names: frozenset[str] | None, programs: list[Program]) -> _Render:
    match value:
        case str():
            return _text(value, names, programs)
        case list() | tuple():
            return _list([_compile(item, names, programs) for item in value])
        case Mapping():
            for key in value:
                _refuse_in_key(key)
            return _object({k: _compile(item, names, programs) for k, item in value.items()})
        case _:
            return _constant(value)


def _refuse_in_key(key: str) -> None:
    if _OPEN in key:
        raise ExpressionError(
            "template_in_key", f'"{key}": a key is taken as it is; move ${{{{ }}}} to the value.'
        )


def _text(text: str, names: frozenset[str] | None, programs: list[Program]) -> _Render:
    parts = [part if literal else _program(part, names, programs) for part, literal in _split(text)]
    match parts:
        case []:
            return _constant("")
        case [str() as literal]:
            return _constant(literal)
        case [Program() as program]:
            return program.evaluate
        case _:
            return _joined(tuple(parts))


def _program(text: str, names: frozenset[str] | None, programs: list[Program]) -> Program:
    program = compile_expression(text, names=names)
    programs.append(program)
    return program


def _split(text: str) -> Iterator[tuple[str, bool]]:
    """The parts of a text: ``(literal, True)`` and ``(expression, False)``."""
    start = 0
    while (opening := text.find(_OPEN, start)) >= 0:
        if opening > start:
            yield text[start:opening], True
        closing = _closing(text, opening + len(_OPEN))
        yield text[opening + len(_OPEN) : closing].strip(), False
        start = closing + 2
    if start < len(text):
        yield text[start:], True


def _closing(text: str, start: int) -> int:
    """Where the ``}}`` of an expression stands: outside its own strings and braces."""
    depth = 0
    for token in tokens(text, start):
        if token.text == "{":
            depth += 1
        elif token.text == "}":
            if depth == 0 and text[token.start : token.start + 2] == "}}":
                return token.start
            depth -= 1
    raise ExpressionError("unclosed", f"{_OPEN} is not closed: write }}}} behind the expression.")


def _constant(value: Any) -> _Render:
    return lambda _scope: value


def _list(items: list[_Render]) -> _Render:
    return lambda scope: [render(scope) for render in items]


def _object(items: dict[str, _Render]) -> _Render:
    return lambda scope: {key: render(scope) for key, render in items.items()}


def _joined(parts: tuple[str | Program, ...]) -> _Render:
    return lambda scope: "".join(
        part if isinstance(part, str) else _as_text(part.evaluate(scope)) for part in parts
    )


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
