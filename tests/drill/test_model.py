"""The model check, small enough for every day; ``python -m tests.drill --only model`` goes on."""

from __future__ import annotations

import pytest

from tests.drill.line import Size
from tests.drill.model.check import LITTLE, MUTANTS, Mutant, model, without
from tests.drill.model.machine import Machine
from tests.drill.model.planner import workflow_of
from tests.drill.model.provider import KEYLESS
from tests.drill.model.search import TooManyWorlds, search
from tests.drill.model.state import Guards


def test_all_worlds_of_the_model_hold_what_they_must() -> None:
    lines = list(model(Size.QUICK, 0))
    assert [line.broken for line in lines if not line.held] == []
    assert sum(line.tried for line in lines) > 50_000


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "_"))
def test_a_model_without_a_guard_breaks_and_tells_how(mutant: Mutant) -> None:
    found = without(mutant)
    assert mutant.caught in found.broken
    assert found.words().splitlines()[0].startswith("  1. ")


def test_a_search_beyond_its_limit_says_so() -> None:
    machine = Machine(workflow_of(KEYLESS, side_by_side=False), KEYLESS, Guards())
    with pytest.raises(TooManyWorlds, match="more than 100 worlds"):
        search(machine, LITTLE, limit=100)
