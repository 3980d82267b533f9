"""Laws of undoing: in reverse along the graph, side by side where it was, each once, and the run is
where it was. The laws of ``tests.core.planning_world`` hold all the while."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from orchestrator.core import saga, undoing
from orchestrator.core.decision import Ref
from orchestrator.core.errors import StateConflict
from orchestrator.core.snapshot import Code
from orchestrator.core.states import RUN_TERMINAL, RunState
from tests.core.planning_world import Driver, Truth, World, random_workflow, workflow_of
from tests.core.test_planning_properties import shown

laws = settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
seeds = st.integers(min_value=0, max_value=2**32)


def ended(seed: int, rng: random.Random, *, fails: float) -> World:
    workflow = random_workflow(rng)
    note(shown(workflow))
    world = World(workflow, Truth(seed))
    Driver(world, rng, fails=fails).run()
    return world


def undo_step(world: World, position: int, *, with_dependents: bool) -> None:
    state = world.state
    world.undo(
        lambda s: undoing.compensate_step(
            world.workflow,
            s,
            world.truth,
            position,
            state=state,
            with_dependents=with_dependents,
        )
    )


def undo_all(world: World) -> None:
    state = world.state
    world.undo(lambda s: undoing.undo_all(world.workflow, s, world.truth, state=state))


@laws
@given(seeds)
def test_a_run_comes_back_to_its_end_however_its_steps_are_undone(seed: int) -> None:
    rng = random.Random(seed)
    world = ended(seed, rng, fails=0.2)
    for _ in range(6):
        before, verdict = world.state, world.snapshot.verdict
        n_ends = sum(kind == f"run.{before}" for kind in world.events)
        position = rng.randrange(len(world.workflow.steps))
        try:
            undo_step(world, position, with_dependents=rng.random() < 0.7)
        except StateConflict:
            continue
        Driver(world, rng, fails=0.3).run(meddle=0.02)
        assert (world.state, world.snapshot.verdict) == (before, verdict)
        assert world.snapshot.undo is None
        assert sum(kind == f"run.{before}" for kind in world.events) == n_ends


@laws
@given(seeds)
def test_what_is_undone_as_a_whole_leaves_nothing_standing(seed: int) -> None:
    """The books are at zero: each step that could be undone was, and its compensation ran once."""
    rng = random.Random(seed)
    world = ended(seed, rng, fails=0.1)
    before = world.state
    undo_all(world)
    driver = Driver(world, rng, fails=0)
    driver.lose = 0.0
    driver.run(meddle=0)
    assert world.state == before
    assert saga.standing(world.workflow, world.snapshot) == []
    final = saga.left_over(world.workflow, world.snapshot)
    wanted = saga.undoable(world.workflow, world.snapshot)
    word = "partial" if final else "full" if wanted else "none"
    assert saga.verdict(world.workflow, world.snapshot) == word
    for undo in wanted:
        assert world.snapshot.code(undo.position) == Code.COMPLETED


@laws
@given(seeds)
def test_a_whole_undo_that_is_asked_for_twice_undoes_once(seed: int) -> None:
    rng = random.Random(seed)
    world = ended(seed, rng, fails=0)
    undo_all(world)
    if world.state is RunState.COMPENSATING:
        state = RunState(world.snapshot.undo.back) if world.snapshot.undo else world.state
        world.undo(lambda s: undoing.undo_all(world.workflow, s, world.truth, state=state))
    driver = Driver(world, rng, fails=0)
    driver.lose = 0.0
    driver.run(meddle=0)
    claims = {
        s.key: world.rows[Ref(s.position)].claims
        for s in world.workflow.compensations
        if Ref(s.position) in world.rows and s.retry.max_retries == 0
    }
    assert all(n == 1 for n in claims.values()), claims
    assert world.state in RUN_TERMINAL


def test_branches_are_undone_side_by_side_and_what_they_grew_from_last() -> None:
    def step(*needs: str) -> dict[str, object]:
        return {"type": "tool", "tool": "noop", "needs": [*needs], "compensate": {"tool": "noop"}}

    workflow = workflow_of(
        {"a": step(), "b": step("a"), "c": step("a"), "d": step("c"), "e": step("b", "d")}
    )
    turns = {workflow.steps[p].key: turn for p, turn in saga.layers(workflow).items()}
    assert turns == {"e": 1, "b": 2, "d": 2, "c": 3, "a": 4}
