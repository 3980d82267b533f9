"""The tools known to this process, by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar

from orchestrator.authoring.errors import DuplicateTool, ToolDefinitionError, UnknownTool
from orchestrator.authoring.signature import read_signature
from orchestrator.authoring.spec import ToolSpec
from orchestrator.core.comparing import Listed

TOOL_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*")
MAX_NAME_LENGTH = 100

Function = TypeVar("Function", bound=Callable[..., Any])


class ToolRegistry:
    """Tools by name. Names are unique: a second function under a taken name is refused."""

    def __init__(self) -> None:
        self._specs: dict[str, ToolSpec] = {}

    def register(self, spec: ToolSpec) -> None:
        """Add ``spec``; the same function again (a reloaded module) replaces itself."""
        present = self._specs.get(spec.name)
        if present is not None and present.origin != spec.origin:
            raise DuplicateTool(
                f"two functions are registered as tool {spec.name!r}: {present.origin} and "
                f"{spec.origin}; rename one of them"
            )
        self._specs[spec.name] = spec

    def get(self, name: str) -> ToolSpec:
        """The tool called ``name``; ``UnknownTool`` if there is none."""
        try:
            return self._specs[name]
        except KeyError:
            raise UnknownTool(
                f"no tool is called {name!r}; tools are functions decorated with @tool in a "
                "tools.py of an installed app"
            ) from None

    def name_of(self, function: Callable[..., Any]) -> str | None:
        """The name under which ``function`` is registered; None when it is no tool."""
        found = (name for name, spec in self._specs.items() if spec.function is function)
        return next(found, None)

    def names(self) -> tuple[str, ...]:
        """All names, sorted."""
        return tuple(sorted(self._specs))

    def __contains__(self, name: object) -> bool:
        return name in self._specs


registry = ToolRegistry()


def tool(  # noqa: PLR0913 - the words of the contract
    name: str,
    *,
    idempotent: bool = False,
    effect: Literal["required"] | None = None,
    reconcile: Callable[..., Any] | None = None,
    service: str | None = None,
    timeout: float | None = None,
    literal: tuple[str, ...] = (),
    listing: Callable[..., Iterable[Listed]] | None = None,
    trusted: bool = False,
    key_header: str | None = None,
    pure: bool = False,
) -> Callable[[Function], Function]:
    """Register a function as the tool ``name``; the function itself stays as it is.

    ``idempotent``: a second call with the same key changes nothing. ``effect="required"``: a step
    that uses it must declare an effect key. ``reconcile``, ``service`` (the breaker it belongs to),
    ``timeout`` (seconds), ``literal`` (parameters), ``listing`` (the provider's book),
    ``trusted`` (no stranger's words in its answer), ``key_header`` and ``pure`` (reads and changes
    nothing outside): see ``ToolSpec``. Typed parameters give the input schema, a return annotation
    the output schema; the first parameter may be the context, named ``ctx``.
    """

    def decorate(function: Function) -> Function:
        _require_name(name, function)
        if pure and (effect is not None or reconcile is not None):
            raise ToolDefinitionError(
                f"{function.__module__}.{function.__qualname__}: tool {name!r} is pure and has an"
                " effect: remove one of them"
            )
        _require_service(service, function)
        registry.register(
            ToolSpec(
                name=name,
                function=function,
                signature=read_signature(function),
                idempotent=idempotent,
                effect=effect,
                reconcile=reconcile,
                service=service,
                timeout=timeout,
                literal=literal,
                listing=listing,
                trusted=trusted,
                key_header=key_header,
                pure=pure,
            )
        )
        return function

    return decorate


def _require_service(service: str | None, function: Callable[..., Any]) -> None:
    if service is not None and (not service or "@" in service or not service.isprintable()):
        raise ToolDefinitionError(
            f"{function.__module__}.{function.__qualname__}: {service!r} is no service: use"
            " printable text without @, which marks the services of one tenant"
        )


def _require_name(name: str, function: Callable[..., Any]) -> None:
    if len(name) > MAX_NAME_LENGTH or not TOOL_NAME.fullmatch(name):
        raise ToolDefinitionError(
            f"{function.__module__}.{function.__qualname__}: {name!r} is no tool name; use "
            "lower-case words joined by dots, for example payments.charge"
        )
