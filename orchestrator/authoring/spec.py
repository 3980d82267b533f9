"""A registered tool: the function and all that its author declared about it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from orchestrator.authoring.context import ToolContext
from orchestrator.authoring.signature import Signature
from orchestrator.core.comparing import Listed


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """One tool, as publishing, the editor and the executor see it.

    ``reconcile(ctx, **input)`` returns the output if the effect was applied, None if certainly
    not, and raises if that is unknown. ``timeout`` in seconds bounds a call below the step's own.
    ``literal`` names parameters whose value must stand in the document as it is. ``key_header`` is
    the HTTP header that carries the effect's key, unless a parameter of that name says otherwise.
    ``pure``: it reads and changes nothing outside, so that a simulation may call it.
    ``literal`` names parameters whose value must stand in the document as it is.
    ``listing(ctx, since, until)`` yields ``Listed``: what stands in the provider's book between the
    two instants, for the nightly comparison; ``ctx`` has ``tenant`` and ``secret(name)``.
    """

    name: str
    function: Callable[..., Any]
    signature: Signature
    idempotent: bool
    effect: Literal["required"] | None
    reconcile: Callable[..., Any] | None
    service: str | None
    timeout: float | None
    literal: tuple[str, ...] = ()
    listing: Callable[..., Iterable[Listed]] | None = None
    trusted: bool = False
    key_header: str | None = None
    pure: bool = False

    @property
    def input_schema(self) -> dict[str, Any]:
        """JSON Schema of the arguments: an object, closed unless the function takes ``**extra``."""
        return self.signature.input_schema

    @property
    def output_schema(self) -> dict[str, Any] | None:
        """JSON Schema of the answer; None when the return annotation says nothing."""
        return self.signature.output_schema

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters in order, without the context."""
        return self.signature.parameters

    @property
    def reconciles(self) -> bool:
        """Whether it can look up what became of an effect."""
        return self.reconcile is not None

    @property
    def doc(self) -> str:
        """The function's docstring, or an empty string."""
        return inspect.getdoc(self.function) or ""

    @property
    def origin(self) -> str:
        """Where the function is defined: ``module.qualified_name (line)``."""
        line = inspect.unwrap(self.function).__code__.co_firstlineno
        return f"{self.function.__module__}.{self.function.__qualname__} (line {line})"

    def call(self, context: ToolContext, value: Any) -> Any:
        """Call the function with a step's input; ``ArgumentMismatch`` before it is called."""
        return self._apply(self.function, context, self.signature.bind(value))

    def bind(self, value: Any) -> dict[str, Any]:
        """The keyword arguments for a step's input; ``ArgumentMismatch`` if they do not fit."""
        return self.signature.bind(value)

    def look_up(self, context: ToolContext, value: Any) -> Any:
        """Ask ``reconcile`` what became of the effect; see the class for its answers."""
        if self.reconcile is None:
            raise LookupError(f"tool {self.name} declares no reconcile function")
        return self.reconcile(context, **self.signature.bind(value))

    def _apply(
        self, function: Callable[..., Any], context: ToolContext, arguments: dict[str, Any]
    ) -> Any:
        if self.signature.takes_context:
            return function(context, **arguments)
        return function(**arguments)
