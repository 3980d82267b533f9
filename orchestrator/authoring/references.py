"""What a workflow written in Python calls its values by: expressions, steps, edges."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Literal

from orchestrator.authoring.errors import WorkflowError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_RESERVED = frozenset(
    {
        *("as", "break", "const", "continue", "else", "false", "for", "function", "if", "import"),
        *("in", "let", "loop", "namespace", "null", "package", "return", "true", "var", "void"),
        "while",
    }
)
_PATH = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*|\[[0-9]+\])*", re.ASCII)


class Expr:
    """One CEL expression. Paths go on: ``flow.input.order.lines[0]``, ``charge.output["id"]``.

    In data it is written as ``${{ … }}``, also inside an f-string; where the document wants bare
    CEL (``when``, ``until``, a router's ``value``) as it is, and so does ``f"{amount:cel} > 5"``.
    Comparisons and ``&``, ``|``, ``~`` give a new expression; it has no truth value in Python.
    """

    __slots__ = ("_is_path", "_text")

    def __init__(self, text: str, *, is_path: bool | None = None) -> None:
        self._text = text
        self._is_path = bool(_PATH.fullmatch(text)) if is_path is None else is_path

    def __getattr__(self, name: str) -> Expr:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, part: str | int) -> Expr:
        base = self._operand()
        if isinstance(part, str) and _NAME.fullmatch(part) and part not in _RESERVED:
            return Expr(f"{base}.{part}", is_path=True)
        return Expr(f"{base}[{json.dumps(part, ensure_ascii=False)}]", is_path=True)

    def __str__(self) -> str:
        return f"${{{{ {self._text} }}}}"

    def __format__(self, spec: str) -> str:
        if spec == "cel":
            return self._text
        if spec:
            raise WorkflowError(
                f"{self!r} knows no format {spec!r}: write {{…}} for ${{{{ }}}} or {{…:cel}} for"
                " bare CEL"
            )
        return str(self)

    def __repr__(self) -> str:
        return f"Expr({self._text!r})"

    def __bool__(self) -> bool:
        raise WorkflowError(
            f"{self!r} has a value only when a run asks for it: write & for and, | for or,"
            " ~ for not, and a CEL text with ? : for a choice"
        )

    def __hash__(self) -> int:
        return hash(self._text)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return self._compared("==", other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return self._compared("!=", other)

    def __lt__(self, other: object) -> Expr:
        return self._compared("<", other)

    def __le__(self, other: object) -> Expr:
        return self._compared("<=", other)

    def __gt__(self, other: object) -> Expr:
        return self._compared(">", other)

    def __ge__(self, other: object) -> Expr:
        return self._compared(">=", other)

    def __and__(self, other: Expr) -> Expr:
        return Expr(f"{self._operand()} && {other._operand()}")

    def __or__(self, other: Expr) -> Expr:
        return Expr(f"{self._operand()} || {other._operand()}")

    def __invert__(self) -> Expr:
        return Expr(f"!{self._operand()}")

    def _compared(self, sign: str, other: object) -> Expr:
        return Expr(f"{self._operand()} {sign} {_operand(other)}")

    def _operand(self) -> str:
        return self._text if self._is_path else f"({self._text})"


def _operand(value: object) -> str:
    if isinstance(value, Expr):
        return value._operand()  # noqa: SLF001 - of the same class
    if value is None or isinstance(value, str | int | float):
        return json.dumps(value, ensure_ascii=False)
    raise WorkflowError(
        f"an expression cannot be compared with {type(value).__name__} {value!r}: write text, a"
        " number, true, false, null or another expression"
    )


def cel(text: str) -> Expr:
    """Any CEL text as an expression: ``cel("has(input.name) ? input.name : 'you'")``."""
    return Expr(text)


class StepRef:
    """One step of a workflow that is being written, to be named by others."""

    __slots__ = ("flow", "key")

    def __init__(self, key: str, flow: object) -> None:
        self.key = key
        self.flow = flow

    @property
    def output(self) -> Expr:
        """What the step answers: ``steps.<key>.output``."""
        return Expr(f"steps.{self.key}.output")

    @property
    def state(self) -> Expr:
        """How it stands: ``steps.<key>.state``."""
        return Expr(f"steps.{self.key}.state")

    def __repr__(self) -> str:
        return f"StepRef({self.key!r})"


StepName = str | StepRef
ToolName = str | Callable[..., Any]
EdgeOn = Literal["completed", "failed", "skipped", "any"]


class Need:
    """An edge with a condition, made by ``need``."""

    __slots__ = ("on", "step", "when")

    def __init__(self, step: StepName, when: str | Expr | None, on: EdgeOn | None) -> None:
        self.step = step
        self.when = when
        self.on = on


def need(step: StepName, *, when: str | Expr | None = None, on: EdgeOn | None = None) -> Need:
    """An edge from ``step``: taken if it ended ``on`` (completed) and ``when`` holds, which is CEL
    over its ``output``, ``input`` and ``steps``."""
    return Need(step, when, on)
