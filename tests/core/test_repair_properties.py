"""Laws of repair: whatever a run came to, repairing it ends, and what completed stays done.

The laws of ``tests.core.planning_world`` hold all the while: the rows are the compact state, each
step meets the fate that its edges give it, the same wish leads to the same decision.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from orchestrator.core import repairing
from orchestrator.core.decision import Ref
from orchestrator.core.errors import ErrorClass, StateConflict, StepError
from orchestrator.core.outcomes import Failed, Succeeded, Waiting
from orchestrator.core.reopening import behind
from orchestrator.core.settling import Expanded
from orchestrator.core.snapshot import Code
from orchestrator.core.states import RunState, StepState
from tests.core.planning_world import Driver, Truth, World, random_workflow, workflow_of
from tests.core.test_planning_properties import shown

laws = settings(
    max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
seeds = st.integers(min_value=0, max_value=2**32)
REPAIRABLE = (RunState.FAILED, RunState.CANCELLED)


def failed_run(seed: int, rng: random.Random, *, most: int = 8) -> World:
    """A run that has ended somehow."""
    workflow = random_workflow(rng, most=most, compensated=seed % 4 == 0)
    note(shown(workflow))
    world = World(workflow, Truth(seed))
    Driver(world, rng, fails=rng.choice([0.2, 0.5])).run()
    return world


def completed(world: World) -> dict[Ref, int]:
    """How often each completed step, or item, has been claimed. A fallback that gave up or was cut
    off spreads out anew when its owner is tried again."""
    steps = world.workflow.steps
    return {
        ref: row.claims
        for ref, row in world.rows.items()
        if row.state is StepState.COMPLETED
        and (ref.item is None or steps[ref.position].owner is None)
    }


@laws
@given(seeds)
def test_a_retried_run_ends_and_repeats_nothing_that_had_completed(seed: int) -> None:
    rng = random.Random(seed)
    world = failed_run(seed, rng)
    for _ in range(4):
        if world.state is not RunState.FAILED or not _retry(world, rng):
            return
        Driver(world, rng, fails=0.3).run(meddle=0.01)


def _retry(world: World, rng: random.Random) -> bool:
    positions = list(range(len(world.workflow.steps)))
    rng.shuffle(positions)
    for position in positions:
        before = completed(world)
        try:
            world.repair(lambda wish, p=position: repairing.retry_step(wish, p))  # type: ignore[misc]
        except StateConflict:
            continue
        note(f"retried {world.workflow.steps[position].key}: {world.state}")
        after = completed(world)
        assert after.items() >= before.items(), "what had completed is to run again"
        return True
    return False


@laws
@given(seeds)
def test_a_run_resumed_from_any_point_repeats_only_what_is_behind_it(seed: int) -> None:
    rng = random.Random(seed)
    world = failed_run(seed, rng)
    for _ in range(4):
        if world.state not in REPAIRABLE:
            return
        position = rng.randrange(len(world.workflow.steps))
        before = completed(world)
        try:
            world.repair(lambda wish, p=position: repairing.resume_from(wish, [p]))  # type: ignore[misc]
        except StateConflict:
            return
        note(f"resumed from {world.workflow.steps[position].key}: {world.state}")
        roots = {position} | _owners(world, position)
        spared = {
            ref: n for ref, n in before.items() if ref.position not in behind(world.workflow, roots)
        }
        assert completed(world).items() >= spared.items()
        Driver(world, rng, fails=0.2).run(meddle=0.01)


def _owners(world: World, position: int) -> set[int]:
    owner = world.workflow.steps[position].owner
    return set() if owner is None else {owner} | _owners(world, owner)


@laws
@given(seeds)
def test_a_retry_after_which_all_goes_well_completes_the_run(seed: int) -> None:
    rng = random.Random(seed)
    workflow = random_workflow(rng, compensated=seed % 4 == 0)
    note(shown(workflow))
    world = World(workflow, Truth(seed, plain=True))
    Driver(world, rng, fails=0.4).run(meddle=0)
    if world.state is not RunState.FAILED or not _retry(world, rng):
        return
    driver = Driver(world, rng, fails=0)
    driver.lose = 0.0
    driver.run(meddle=0)
    exhausted = [
        step.key
        for step in workflow.steps
        if step.repeat is not None and world.snapshot.code(step.position) == Code.FAILED
    ]
    assert world.state is RunState.COMPLETED or exhausted


@laws
@given(seeds)
def test_an_optional_step_that_waits_or_failed_can_be_skipped_and_the_run_ends(seed: int) -> None:
    rng = random.Random(seed)
    workflow = random_workflow(rng, compensated=seed % 4 == 0)
    note(shown(workflow))
    world = World(workflow, Truth(seed))
    driver = Driver(world, rng, fails=0.3)
    for _ in range(60):
        if world.state in (RunState.COMPLETED, RunState.TIMED_OUT, RunState.CANCELLED):
            return
        if rng.random() < 0.3 and (world.state is RunState.FAILED or not world.snapshot.verdict):
            position = rng.randrange(len(workflow.steps))
            try:
                world.repair(lambda wish, p=position: repairing.skip_step(wish, p))  # type: ignore[misc]
            except StateConflict:
                pass
            else:
                assert world.snapshot.state(position) is StepState.SKIPPED
        if world.state is RunState.FAILED:
            return
        if world.state is not RunState.COMPLETED:
            driver.one_fact(0)
    if world.state is not RunState.FAILED and world.state is not RunState.COMPLETED:
        driver.run(meddle=0)


def world_of(**steps: dict[str, object]) -> World:
    for step in steps.values():
        step.setdefault("type", "tool")
        if step["type"] == "tool":
            step["tool"] = "noop"
        step.setdefault("retry", {"max_retries": 0})
    return World(workflow_of(steps), Truth(1))


def run(world: World, **answers: object) -> None:
    """Claim and settle what is on its way, by key; a step that has no answer succeeds."""
    while world.wakeups:
        ref = world.wakeups.pop(0)
        if not world.claim(ref):
            continue
        key = world.workflow.steps[ref.position].key
        answer = answers.get(key, Succeeded(output={}))
        world.settle(ref, answer)  # type: ignore[arg-type]


def broken(error_class: ErrorClass = ErrorClass.PERMANENT) -> Failed:
    return Failed(error=StepError(error_class=error_class, message="broken"))


def retry(world: World, key: str) -> None:
    position = world.workflow.by_key[key]
    world.repair(lambda wish: repairing.retry_step(wish, position))


def states(world: World) -> dict[str, str]:
    return {s.key: str(world.snapshot.state(s.position)) for s in world.workflow.steps}


def test_a_retried_step_is_ready_and_what_was_cancelled_behind_it_is_blocked_again() -> None:
    world = world_of(a={}, b={"needs": ["a"]}, c={"needs": ["b"]})
    run(world, b=broken())
    assert (world.state, states(world)["c"]) == ("failed", "cancelled")
    retry(world, "b")
    assert states(world) == {"a": "completed", "b": "ready", "c": "blocked"}
    run(world)
    assert world.state == "completed"
    assert world.rows[Ref(0)].claims == 1


def test_a_parallel_branch_that_the_end_cut_off_goes_on() -> None:
    world = world_of(a={}, b={"type": "wait", "signal": "go"}, z={"needs": ["a", "b"]})
    run(world, a=broken(), b=Waiting(kind="signal", key="go"))
    assert states(world)["b"] == "cancelled"
    retry(world, "a")
    run(world)
    assert (world.state, states(world)["z"]) == ("completed", "completed")


def test_a_step_that_another_edge_took_over_is_not_retried_behind_its_back() -> None:
    world = world_of(a={}, b={"needs": [{"step": "a", "on": "failed"}]}, c={"needs": ["b"]})
    run(world, a=broken(), c=broken())
    with pytest.raises(StateConflict) as refused:
        retry(world, "a")
    assert refused.value.code == "failure_handled"
    assert states(world)["b"] == "completed"


def test_only_a_failed_step_is_retried() -> None:
    world = world_of(a={}, b={"needs": ["a"]})
    run(world, b=broken())
    with pytest.raises(StateConflict) as refused:
        retry(world, "a")
    assert refused.value.code == "not_failed"


def test_a_for_each_does_only_its_unfinished_items_again() -> None:
    world = world_of(a={"for_each": {"items": "${{ input.items }}"}}, z={"needs": ["a"]})
    expand(world, fails={1})
    assert world.state == "failed"
    done = completed(world)
    retry(world, "a")
    run(world)
    assert world.state == "completed"
    assert (
        completed(world).items()
        >= {ref: n for ref, n in done.items() if ref.item is not None}.items()
    )
    assert world.rows[Ref(0, 1)].claims == 2


def expand(world: World, *, fails: set[int], total: int = 3) -> None:
    ref = world.wakeups.pop(0)
    assert world.claim(ref)
    world.settle(ref, Expanded(total=total))
    while world.wakeups:
        ref = world.wakeups.pop(0)
        if world.claim(ref):
            world.settle(ref, broken() if ref.item in fails else Succeeded(output={}))


def test_a_step_that_is_not_optional_is_not_skipped() -> None:
    world = world_of(a={})
    run(world, a=broken())
    with pytest.raises(StateConflict) as refused:
        world.repair(lambda wish: repairing.skip_step(wish, 0))
    assert refused.value.code == "not_optional"


def test_an_effect_that_did_not_happen_sends_its_step_back() -> None:
    world = world_of(a={})
    run(world, a=Waiting(kind="review"))
    assert (world.state, world.waiting_for) == ("waiting", "review")
    world.repair(lambda wish: repairing.send_back(wish, Ref(0)))
    run(world)
    assert world.state == "completed"


def test_all_that_is_behind_a_checkpoint_runs_again_and_nothing_else() -> None:
    world = world_of(a={}, b={"needs": ["a"]}, c={"needs": ["b"]}, d={"needs": ["a"]})
    run(world, c=broken())
    by_key = world.workflow.by_key
    world.repair(lambda wish: repairing.resume_from(wish, [by_key["b"]]))
    run(world)
    assert world.state == "completed"
    claims = {key: world.rows[Ref(place)].claims for key, place in by_key.items()}
    assert claims == {"a": 1, "b": 2, "c": 2, "d": 1}
