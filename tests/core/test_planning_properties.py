"""Laws that hold for every run of every document, whatever happens in whatever order.

They stand in ``tests.core.planning_world``: no step is claimed twice, a join fires once, what has
ended stays ended, the same fact leads to the same decision, the bytes read back to the same state,
never more bodies than allowed, the rows are the compact state, every run ends, no step starts
before its needs, and each step meets the fate that its edges give it.
"""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from orchestrator.core.canvas import MAX_MESSAGES, Chain, Chord, compile_canvas, messages
from orchestrator.core.compiled import CompiledWorkflow
from orchestrator.core.decision import Ref
from tests.core.planning_world import (
    Driver,
    Truth,
    World,
    check_canvas,
    random_workflow,
    workflow_of,
)

laws = settings(
    max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
seeds = st.integers(min_value=0, max_value=2**32)


def shown(workflow: CompiledWorkflow) -> str:
    lines = [f"max_parallel {workflow.max_parallel}"]
    for step in workflow.steps:
        config = {k: v for k, v in step.config.items() if k not in ("retry", "tool", "model")}
        lines.append(f"{step.key}: {config} on_error={step.on_error}")
    return "\n".join(lines)


@laws
@given(seeds)
def test_every_run_obeys_the_laws_and_ends_whatever_happens(seed: int) -> None:
    rng = random.Random(seed)
    workflow = random_workflow(rng)
    note(shown(workflow))
    world = World(workflow, Truth(seed))
    Driver(world, rng).run()


@settings(parent=laws, max_examples=40)
@given(seeds)
def test_large_runs_obey_the_laws_too(seed: int) -> None:
    rng = random.Random(seed)
    workflow = random_workflow(rng, most=30)
    note(shown(workflow))
    Driver(World(workflow, Truth(seed)), rng, fails=0.1).run(meddle=0.005)


@laws
@given(seeds)
def test_a_run_that_nobody_disturbs_and_where_all_succeeds_completes(seed: int) -> None:
    rng = random.Random(seed)
    workflow = random_workflow(rng)
    note(shown(workflow))
    world = World(workflow, Truth(seed, plain=True))
    driver = Driver(world, rng, fails=0)
    driver.lose = 0.0
    driver.run(meddle=0)
    gave_up = [step.key for step in workflow.steps if world.snapshot.state(step.position) in FAILED]
    for key in gave_up:  # nothing but an exhausted repeat can fail here
        assert workflow.step(key).repeat is not None
    assert world.state == "completed" or gave_up


FAILED = ("failed", "timed_out")


@laws
@given(seeds, st.booleans())
def test_a_canvas_starts_each_ref_once_and_is_bounded(seed: int, fuse: bool) -> None:
    """Any wave, also those that planning would never send together."""
    rng = random.Random(seed)
    workflow = random_workflow(rng, most=40)
    positions = rng.sample(range(len(workflow.steps)), rng.randint(1, len(workflow.steps)))
    wave = [Ref(position) for position in positions if _stand_alone(workflow, positions, position)]
    wave += [Ref(positions[0], index) for index in range(rng.randint(0, 30))]
    note(shown(workflow))
    check_canvas(workflow, wave, fuse=fuse)


def _stand_alone(workflow: CompiledWorkflow, positions: list[int], position: int) -> bool:
    """READY steps never need one another."""
    behind = {position}
    for _ in workflow.steps:
        behind |= {edge.target for p in behind for edge in workflow.steps[p].outs}
    return not (behind - {position}) & set(positions)


def _noops(needs: dict[str, list[str]], **keys: dict[str, object]) -> CompiledWorkflow:
    steps = {
        key: {"type": "tool", "tool": "noop", "needs": list(names), **keys.get(key, {})}
        for key, names in needs.items()
    }
    return workflow_of(steps)


def test_a_line_of_steps_on_one_queue_is_one_message() -> None:
    workflow = _noops({"a": [], "b": ["a"], "c": ["b"]})
    (canvas,) = compile_canvas(workflow, [Ref(0)])
    assert [ref.position for ref in next(messages(canvas)).refs] == [0, 1, 2]


def test_a_line_that_changes_queues_is_a_chain() -> None:
    workflow = _noops({"a": [], "b": ["a"], "c": ["b"]}, b={"queue": "other"})
    (canvas,) = compile_canvas(workflow, [Ref(0)])
    assert isinstance(canvas, Chain)
    assert [link.queue for link in canvas.links] == ["tool", "other", "tool"]


def test_parallel_branches_with_one_join_are_a_chord() -> None:
    workflow = _noops({"a": [], "b": [], "c": ["a", "b"]})
    (canvas,) = compile_canvas(workflow, [Ref(0), Ref(1)])
    assert isinstance(canvas, Chord)
    assert canvas.body.refs == (Ref(2),)


def test_a_long_chain_carries_no_more_than_a_canvas_may() -> None:
    keys = [f"k{n:02}" for n in range(40)]
    needs = {key: keys[n - 1 : n] if n else [] for n, key in enumerate(keys)}
    (canvas,) = compile_canvas(_noops(needs), [Ref(0)], fuse=False)
    assert len(list(messages(canvas))) == MAX_MESSAGES
