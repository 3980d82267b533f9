"""Breadth first through all worlds, so that the first counterexample found is a shortest one."""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass, field

from tests.drill.model.machine import Machine
from tests.drill.model.state import TERMINAL, Left, World

DEAD_END = "from here nothing leads to an end any more, whoever acts"


@dataclass(slots=True)
class Found:
    """What the search saw. ``broken`` is empty, or says what failed; ``trace`` how it came."""

    n_worlds: int = 0
    n_steps: int = 0
    broken: str = ""
    trace: list[str] = field(default_factory=list)

    def words(self) -> str:
        """The counterexample, to be read."""
        lines = [f"{number:>3}. {words}" for number, words in enumerate(self.trace, 1)]
        return "\n".join([*lines, f"  => {self.broken}"])


class TooManyWorlds(RuntimeError):
    """The bounds let more worlds arise than the search may hold."""


def search(machine: Machine, left: Left, *, limit: int) -> Found:
    """All worlds within the bounds; stops at the first that breaks a property."""
    first = machine.first(left)
    numbers: dict[World, int] = {first: 0}
    came: list[tuple[int, str]] = [(-1, "")]
    ends: list[int] = []
    sources, targets = array("I"), array("I")
    queue = deque([first])
    found = Found()
    while queue:
        world = queue.popleft()
        number = numbers[world]
        if world.run in TERMINAL:
            ends.append(number)
        for step in machine.nexts(world):
            found.n_steps += 1
            known = numbers.get(step.world)
            if known is None:
                known = numbers[step.world] = len(came)
                came.append((number, step.words))
                if step.world.broken:
                    found.n_worlds = len(came)
                    return _told(found, came, known, step.world.broken)
                queue.append(step.world)
                if known >= limit:
                    raise TooManyWorlds(f"more than {limit:,} worlds")
            if not step.chance:
                sources.append(number)
                targets.append(known)
    found.n_worlds = len(came)
    dead = _dead_end(len(came), sources, targets, ends)
    return found if dead is None else _told(found, came, dead, DEAD_END)


def _dead_end(
    n_worlds: int, sources: array[int], targets: array[int], ends: list[int]
) -> int | None:
    """The first world from which, without any luck, no end can be reached."""
    into: list[list[int]] = [[] for _ in range(n_worlds)]
    for source, target in zip(sources, targets, strict=True):
        into[target].append(source)
    alive = bytearray(n_worlds)
    stack = list(ends)
    for number in ends:
        alive[number] = 1
    while stack:
        for source in into[stack.pop()]:
            if not alive[source]:
                alive[source] = 1
                stack.append(source)
    dead = alive.find(0)
    return None if dead < 0 else dead


def _told(found: Found, came: list[tuple[int, str]], number: int, broken: str) -> Found:
    found.broken = broken
    while number > 0:
        number, words = came[number]
        found.trace.append(words)
    found.trace.reverse()
    return found
