"""A directed graph of step keys: order, cycles, reachability and the longest remaining path.

It knows keys and arrows only; conditions, states and step kinds are no business of it. Everything
is iterative, since a chain may have 2,000 steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from functools import cached_property
from heapq import heapify, heappop, heappush


class Graph:
    """Keys in their given order, and arrows between them; arrows of unknown keys are left out."""

    def __init__(self, keys: Iterable[str], arrows: Iterable[tuple[str, str]]) -> None:
        self.keys = tuple(dict.fromkeys(keys))
        known = set(self.keys)
        after: dict[str, dict[str, None]] = {key: {} for key in self.keys}
        before: dict[str, dict[str, None]] = {key: {} for key in self.keys}
        for source, target in arrows:
            if source in known and target in known:
                after[source][target] = None
                before[target][source] = None
        self.after: Mapping[str, tuple[str, ...]] = {k: tuple(v) for k, v in after.items()}
        self.before: Mapping[str, tuple[str, ...]] = {k: tuple(v) for k, v in before.items()}

    def order(self) -> tuple[str, ...]:
        """The keys, each behind all that it needs; ties by given order. Cycles are left out."""
        place = {key: index for index, key in enumerate(self.keys)}
        missing = {key: len(self.before[key]) for key in self.keys}
        ready = [place[key] for key in self.keys if not missing[key]]
        heapify(ready)
        order: list[str] = []
        while ready:
            key = self.keys[heappop(ready)]
            order.append(key)
            for target in self.after[key]:
                missing[target] -= 1
                if not missing[target]:
                    heappush(ready, place[target])
        return tuple(order)

    def cycles(self) -> tuple[tuple[str, ...], ...]:
        """One cycle for each knot of keys that lead to one another, as a path without its return.

        ``("a", "b")`` means that b needs a and a needs b. Empty when the graph has an order.
        """
        return tuple(self._cycle_in(knot) for knot in self._knots())

    def reachable(self, starts: Iterable[str]) -> frozenset[str]:
        """All keys that the arrows lead to from ``starts``, these included."""
        return _closure(starts, self.after)

    def ancestors(self, key: str) -> frozenset[str]:
        """All keys that lead to ``key``, itself left out (unless it is on a cycle)."""
        return _closure(self.before[key], self.before)

    def leads_to(self, source: str, target: str) -> bool:
        """Whether ``target`` comes behind ``source``; cheap to ask for every pair."""
        if target in self._masks:
            return bool(self._masks[target] & self._bits[source])
        return source in self.ancestors(target)

    def ranks(self) -> dict[str, int]:
        """The longest remaining path from each key, in keys, itself included; 0 on a cycle."""
        ranks = dict.fromkeys(self.keys, 0)
        for key in reversed(self.order()):
            ranks[key] = 1 + max((ranks[target] for target in self.after[key]), default=0)
        return ranks

    def roots(self) -> tuple[str, ...]:
        """The keys that need nothing."""
        return tuple(key for key in self.keys if not self.before[key])

    @cached_property
    def _bits(self) -> dict[str, int]:
        return {key: 1 << index for index, key in enumerate(self.keys)}

    @cached_property
    def _masks(self) -> dict[str, int]:
        """The ancestors of each key as a set of bits; keys on or behind a cycle have none."""
        masks: dict[str, int] = {}
        for key in self.order():
            masks[key] = 0
            for source in self.before[key]:
                masks[key] |= masks[source] | self._bits[source]
        return masks

    def _knots(self) -> list[list[str]]:
        """The groups of keys that lead to one another: what peeling from both ends leaves."""
        left = set(self.keys) - set(self.order())
        knots: list[list[str]] = []
        for key in self.keys:
            if key not in left:
                continue
            knot = self.reachable(self.after[key]) & self.ancestors(key)
            if key in knot:
                knots.append([k for k in self.keys if k in knot])
                left -= knot
        return knots

    def _cycle_in(self, knot: list[str]) -> tuple[str, ...]:
        """The shortest way from the knot's first key back to itself."""
        first, members = knot[0], set(knot)
        came_from: dict[str, str] = {}
        queue = deque([first])
        while queue:
            key = queue.popleft()
            for target in self.after[key]:
                if target == first:
                    return _way_back(came_from, first, key)
                if target in members and target not in came_from:
                    came_from[target] = key
                    queue.append(target)
        return tuple(knot)


def longest_remaining(keys: Iterable[str], arrows: Iterable[tuple[str, str]]) -> dict[str, int]:
    """The rank of each step: the longest path from it to an end, in steps, itself included."""
    return Graph(keys, arrows).ranks()


def _way_back(came_from: Mapping[str, str], first: str, last: str) -> tuple[str, ...]:
    path = [last]
    while path[-1] != first:
        path.append(came_from[path[-1]])
    return tuple(reversed(path))


def _closure(starts: Iterable[str], arrows: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    found = set(starts)
    rest = list(found)
    while rest:
        for key in arrows.get(rest.pop(), ()):
            if key not in found:
                found.add(key)
                rest.append(key)
    return frozenset(found)
