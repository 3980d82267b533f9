"""What validation asks of the installation: tools, models, roles, workflows, queues."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol


class ToolFacts(Protocol):
    """What is known of a tool. ``authoring``'s spec fits but for ``reconciles``."""

    @property
    def name(self) -> str:
        """Its registered name."""
        ...

    @property
    def input_schema(self) -> Mapping[str, Any]:
        """JSON Schema of the arguments (an object)."""
        ...

    @property
    def output_schema(self) -> Mapping[str, Any] | None:
        """JSON Schema of the answer; None when nothing is known."""
        ...

    @property
    def idempotent(self) -> bool:
        """Whether calling it twice does no harm."""
        ...

    @property
    def effect(self) -> Literal["required"] | None:
        """``required``: the step must declare an effect key."""
        ...

    @property
    def reconciles(self) -> bool:
        """Whether it can look up if an effect was applied."""
        ...

    @property
    def literal(self) -> tuple[str, ...]:
        """Parameters whose value must stand in the document as it is, without ``${{ }}``."""
        ...

    @property
    def key_header(self) -> str | None:
        """The HTTP header that carries the effect's key, unless the input names another."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """``ToolFacts`` as a value, for catalogues and tests."""

    name: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None = None
    idempotent: bool = False
    effect: Literal["required"] | None = None
    reconciles: bool = False
    service: str | None = None
    literal: tuple[str, ...] = ()
    key_header: str | None = None


class Catalogue(Protocol):
    """The names that a document may use, for one tenant."""

    def tool(self, name: str) -> ToolFacts | None:
        """The tool of that name."""
        ...

    def tools(self) -> Iterable[str]:
        """All names of tools, for suggestions."""
        ...

    def has_model(self, alias: str) -> bool:
        """Whether the alias, or ``provider:model``, can be called."""
        ...

    def models(self) -> Iterable[str]:
        """All aliases, for suggestions."""
        ...

    def has_role(self, role: str) -> bool:
        """Whether the role exists."""
        ...

    def roles(self) -> Iterable[str]:
        """All roles, for suggestions."""
        ...

    def workflow(self, name: str, version: int | None) -> bool:
        """Whether that workflow (version None: any published one) exists."""
        ...

    def workflows(self) -> Iterable[str]:
        """All names of workflows, for suggestions."""
        ...

    @property
    def queues(self) -> Collection[str]:
        """The queues that workers consume."""
        ...
