"""The model check as a drill: all worlds hold what they must, and every mutant is caught.

``python -m tests.drill.model`` prints each mutant's shortest counterexample.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from tests.drill.line import Line, Size
from tests.drill.model.machine import Machine
from tests.drill.model.planner import workflow_of
from tests.drill.model.provider import ASKABLE, KEYED, KEYLESS
from tests.drill.model.search import Found, search
from tests.drill.model.state import Guards, Left

LIMIT = 2_000_000
KINDS = {KEYED: "honours keys", KEYLESS: "knows no keys", ASKABLE: "can be asked"}
LITTLE = Left(doubles=1, losses=1, crashes=1, stops=1, faults=1, cancels=1)
MUCH = Left(doubles=2, losses=2, crashes=2, stops=1, faults=1, cancels=1)
BESIDE = Left(doubles=0, losses=0, crashes=1, stops=1, faults=1, cancels=1)
DEAD = Left(doubles=0, losses=1, crashes=1, stops=0, faults=0, cancels=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """The world without one guard: against which provider and within which bounds it breaks, and
    a word of the property that does."""

    name: str
    guards: Guards
    caught: str
    tool: str = KEYLESS
    left: Left = LITTLE


MUTANTS = (
    Mutant(name="no fence", guards=Guards(fence=False), caught="a stale fence", tool=KEYED),
    Mutant(name="no intent", guards=Guards(intent=False), caught="without a stored intent"),
    Mutant(name="blind retry", guards=Guards(no_blind_retry=False), caught="was sent again"),
    Mutant(name="no receipt check", guards=Guards(receipt_check=False), caught="done it twice"),
    Mutant(
        name="no READY sweep", guards=Guards(ready_sweep=False), caught="leads to an end", left=DEAD
    ),
    Mutant(
        name="no lease sweep", guards=Guards(lease_sweep=False), caught="leads to an end", left=DEAD
    ),
    Mutant(
        name="terminal is not final",
        guards=Guards(terminal_is_final=False),
        caught="a run that was completed is",
    ),
)


def model(size: Size, seed: int) -> Iterator[Line]:
    """Nothing here is by chance: every seed is the same."""
    for tool, words in KINDS.items():
        yield _line(tool, LITTLE if size is Size.QUICK else MUCH, f"one after the other, {words}")
        if size is not Size.QUICK:
            yield _line(tool, BESIDE, f"side by side, {words}", side_by_side=True)
    yield _mutants()


def _line(tool: str, left: Left, words: str, *, side_by_side: bool = False) -> Line:
    began = time.monotonic()
    found = search(
        Machine(workflow_of(tool, side_by_side=side_by_side), tool, Guards()), left, limit=LIMIT
    )
    figures = {"worlds": found.n_worlds, "steps": found.n_steps, "s": time.monotonic() - began}
    broken = [found.words()] if found.broken else []
    return Line(
        "P2 P3 P4",
        f"all worlds of two steps with one effect, {words}",
        found.n_worlds,
        figures,
        broken,
    )


def _mutants() -> Line:
    broken = []
    for mutant in MUTANTS:
        found = without(mutant)
        if mutant.caught not in found.broken:
            broken.append(f"{mutant.name} is not caught: {found.words()}")
    return Line("P2 P3 P4", "model: each mutant is caught", len(MUTANTS), {}, broken)


def without(mutant: Mutant) -> Found:
    """The first thing that breaks without the guard."""
    machine = Machine(workflow_of(mutant.tool, side_by_side=False), mutant.tool, mutant.guards)
    return search(machine, mutant.left, limit=LIMIT)
