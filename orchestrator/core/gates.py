"""What may keep a READY step from starting: gates, by key, each with how many it lets through.

A gate is a row that exists only while something is shut or limited: an open breaker, an
operator's hold, a quota, a spent retry budget. The whole of them is a value that decisions get.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

GLOBAL = "global"
SCOPES = ("service", "model", "tenant", "queue", GLOBAL)


def gate_key(scope: str, name: str = "") -> str:
    """``service:payments``; the whole installation is ``global``."""
    return GLOBAL if scope == GLOBAL else f"{scope}:{name}"


def split_key(key: str) -> tuple[str, str]:
    """Scope and name of a key; the name of ``global`` is empty."""
    scope, _, name = key.partition(":")
    return scope, name


def own_name(service: str, tenant: str) -> str:
    """A service that only documents of one tenant name."""
    return f"{service}@{tenant}"


def owner_of(service: str) -> str:
    """Whose a service is by its name; empty: everybody's."""
    return service.rpartition("@")[2] if "@" in service else ""


def model_service(target: str) -> str:
    """The service behind one model, ``provider:model``; an ``@`` in it names no owner."""
    return target.replace("@", "_")


def model_gates(target: str) -> tuple[str, ...]:
    """The gates before one model: its provider's and its own breaker's."""
    provider, _, _ = target.partition(":")
    return (gate_key("service", provider), gate_key("service", model_service(target)))


def retries_key(service: str) -> str:
    """The gate that only retries of a service's steps stand behind."""
    return f"retries:{service}"


def crowd_key(queue: str) -> str:
    """Not a gate that steps stand behind: the queue is so long that it gets no fan-out."""
    return f"crowd:{queue}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One gate. ``allows`` 0: shut; else so many steps behind it may be at work at once.

    ``source``: breaker, hold, quota, retries. ``why`` is one sentence for people; ``look_at`` the
    instant (ISO 8601) at which it is looked at again, empty when nobody knows.
    """

    key: str
    source: str
    allows: int
    why: str
    look_at: str = ""


@dataclass(frozen=True, slots=True)
class Gates:
    """All gates there are, the strictest of each key; none: everything may start."""

    by_key: Mapping[str, Gate] = field(default_factory=dict)

    @classmethod
    def of(cls, gates: Iterable[Gate]) -> Gates:
        """From rows; of several for one key the strictest stands."""
        by_key: dict[str, Gate] = {}
        for gate in gates:
            known = by_key.get(gate.key)
            if known is None or gate.allows < known.allows:
                by_key[gate.key] = gate
        return cls(by_key)

    def among(self, keys: Iterable[str], *, passed: str = "") -> list[Gate]:
        """Those with one of ``keys``, by key; ``passed`` is one that has let the step through."""
        return [self.by_key[key] for key in sorted(keys) if key in self.by_key and key != passed]

    def is_shut(self, keys: Iterable[str]) -> bool:
        """Whether one of ``keys`` lets nothing through."""
        return any(gate.allows == 0 for gate in self.among(keys))


OPEN = Gates()


def passing(gates: Sequence[Gate]) -> Gate:
    """Of the gates that let a step through, the one that counts it: a breaker's before others,
    since what passes it is its probe."""
    return min(gates, key=lambda gate: (gate.source != "breaker", gate.allows, gate.key))


def keys_of(own: Iterable[str], *, tenant: str, queue: str) -> tuple[str, ...]:
    """Every gate that a step stands behind. ``own`` are those of its service and model."""
    return (GLOBAL, gate_key("tenant", tenant), gate_key("queue", queue), *own)
