"""The turns of a conversation with a model, kept so that no attempt has to repeat one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from orchestrator.core.outcomes import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One thing that happened, whole: a model answered, or a tool that it asked for was dealt with.

    ``name`` is the model (``provider:model``) or the tool. ``content`` is JSON: of a model
    ``{text, uses: [{id, name, arguments}]}``; of a tool ``{use, arguments, answer, failed}`` and,
    where it was not called, ``refused`` (a code). ``price`` says in words how the cost came about.
    """

    kind: Literal["model", "tool"]
    name: str
    content: Mapping[str, Any]
    usage: Usage = field(default_factory=Usage)
    price: str = ""
    seconds: float = 0.0


class Journal(Protocol):
    """The conversation of one step or item, in one round; whatever attempt asks."""

    @property
    def action(self) -> str:
        """What effect keys of calls in this conversation begin with: one step of one run."""
        ...

    def open(self, fingerprint: str) -> Sequence[Turn]:
        """The turns so far of the last conversation if it began with the same question."""
        ...

    def restart(self) -> None:
        """The conversation led nowhere: what is stored from now on belongs to a new one."""
        ...

    def store(self, turn: Turn) -> None:
        """Keep the turn before anything follows from it; its cost counts from here on. Raises when
        the step is somebody else's by now."""
        ...

    def spent(self) -> Usage:
        """What all conversations of the step have cost so far."""
        ...

    def owed(self) -> Usage:
        """What the outcome still has to say was consumed, as it is not counted yet."""
        ...


class MemoryJournal:
    """A journal for an attempt that no engine stands behind: nothing outlives it."""

    def __init__(self) -> None:
        self.kept: list[Turn] = []

    @property
    def action(self) -> str:
        """See ``Journal``."""
        return "agent"

    def open(self, fingerprint: str) -> Sequence[Turn]:
        """See ``Journal``."""
        del fingerprint
        return ()

    def restart(self) -> None:
        """See ``Journal``."""

    def store(self, turn: Turn) -> None:
        """See ``Journal``."""
        self.kept.append(turn)

    def spent(self) -> Usage:
        """See ``Journal``."""
        return total([turn.usage for turn in self.kept])

    def owed(self) -> Usage:
        """See ``Journal``."""
        return self.spent()


def total(usages: Sequence[Usage]) -> Usage:
    """The sum; one unknown cost makes the whole unknown."""
    costs = [usage.cost_microusd for usage in usages]
    named = [usage.model for usage in usages if usage.model]
    return Usage(
        cost_microusd=None if None in costs else sum(cost for cost in costs if cost is not None),
        tokens_in=sum(usage.tokens_in for usage in usages),
        tokens_out=sum(usage.tokens_out for usage in usages),
        model=named[-1] if named else None,
    )
