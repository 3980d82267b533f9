"""Settling what one worker held together is settling one after the other; claiming in company
keeps every bound."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from orchestrator.core import planning
from orchestrator.core.admission import COMPANY, MAX_QUEUED, Lane, n_queued
from orchestrator.core.compiled import CompiledWorkflow
from orchestrator.core.decision import Decision, Ref
from orchestrator.core.errors import ErrorClass, StepError
from orchestrator.core.outcomes import Failed, Succeeded
from orchestrator.core.settling import Fact, NotBegun
from orchestrator.core.snapshot import QUEUED, Code, Snapshot
from orchestrator.core.states import StepState
from tests.core.planning_world import Driver, Truth, World, random_workflow, workflow_of
from tests.core.test_planning_properties import laws, shown

seeds = st.integers(min_value=0, max_value=2**32)
PACE = {"noop": 0.0002}


def bare(snapshot: Snapshot) -> tuple[Any, ...]:
    """The state, whoever the next ones are sent to: which READY work has a message on its way is
    the carriers' affair."""
    loops = {
        position: (
            loop.total,
            loop.released,
            loop.running,
            loop.retrying,
            loop.ok,
            loop.failed,
            sorted(loop.ready + loop.queued),
            loop.waits,
        )
        for position, loop in snapshot.loops.items()
    }
    codes = bytes(raw & ~QUEUED for raw in snapshot.codes)
    return codes, bytes(snapshot.marks), snapshot.running, snapshot.paused, loops


class Comparing(Driver):
    """Before each fact of a random run, what several answers at once would lead to."""

    n_compared = 0

    def one_fact(self, meddle: float) -> None:
        self._compare()
        super().one_fact(meddle)

    def _compare(self) -> None:
        world, rng = self.world, self.rng
        running = [ref for ref, row in world.rows.items() if row.state is StepState.RUNNING]
        running = [ref for ref in running if ref.item is not None or not self._spreads(ref)]
        if not running:
            return
        chosen = rng.sample(running, rng.randint(1, len(running)))
        facts = [self._fact(ref) for ref in chosen]
        lane = Lane(queue="tool", pace=PACE) if rng.random() < 0.5 else None
        found = planning.settle_many(
            world.workflow, world.snapshot, iter(facts), world.truth, lane=lane
        )
        if found is None:
            return
        merged, subjects = found
        type(self).n_compared += 1
        singles = self._one_by_one(facts[: len(subjects)])
        assert subjects == [one.subject for one in singles]
        for one in singles:
            one.record_asked()
        assert merged.events == [line for one in singles for line in one.events]
        assert merged.ready == [ref for one in singles for ref in one.ready]
        assert merged.loops_done == singles[-1].loops_done
        assert merged.run_state == singles[-1].run_state
        assert merged.waiting_for == singles[-1].waiting_for
        claimed = [ref for ref in (merged.claim, *merged.company) if ref is not None]
        check_claims(world.workflow, merged, claimed)
        after = give_up_claims(merged, claimed)
        assert bare(after) == bare(singles[-1].snapshot)

    def _spreads(self, ref: Ref) -> bool:
        return self.world.workflow.steps[ref.position].for_each is not None

    def _fact(self, ref: Ref) -> Fact:
        row = self.world.rows[ref]
        error = StepError(error_class=ErrorClass.TRANSIENT, message="no")
        outcome = self.rng.choice(
            [Succeeded(output={"n": 1}), Succeeded(output={"n": 2}), NotBegun()] * 3
            + [Failed(error=error)]
        )
        return Fact(
            ref=ref,
            outcome=outcome,
            n_retries=row.n_retries,
            n_lost=row.n_lost,
            round_number=row.round,
        )

    def _one_by_one(self, facts: list[Fact]) -> list[Decision]:
        snapshot, decisions = self.world.snapshot, []
        for fact in facts:
            one = planning.settle(self.world.workflow, snapshot, fact, self.world.truth)
            snapshot = one.snapshot
            decisions.append(one)
        return decisions


def check_claims(workflow: CompiledWorkflow, decision: Decision, claimed: list[Ref]) -> None:
    assert len(set(claimed)) == len(claimed) <= COMPANY
    assert not set(claimed) & {*decision.dispatch, *decision.carried}
    held = decision.snapshot.running + n_queued(decision.snapshot)
    assert held <= workflow.max_parallel or not claimed
    if len(claimed) > 1:
        assert all(workflow.steps[ref.position].may_share for ref in claimed)
        assert all(workflow.steps[ref.position].queue == "tool" for ref in claimed)


def give_up_claims(decision: Decision, claimed: list[Ref]) -> Snapshot:
    """The state as it would be if nothing had been claimed."""
    snapshot = decision.snapshot.copy()
    for ref in claimed:
        snapshot.running -= 1
        if ref.item is None:
            snapshot.codes[ref.position] = Code.READY
        else:
            snapshot.loops[ref.position].running -= 1
            snapshot.loops[ref.position].ready.append(ref.item)
    return snapshot


@laws
@given(seeds)
def test_settling_together_is_settling_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    workflow = random_workflow(rng, most=12)
    note(shown(workflow))
    Comparing(World(workflow, Truth(seed)), rng, fails=0.1).run()


def test_the_comparison_has_something_to_compare() -> None:
    Comparing.n_compared = 0
    for seed in range(30):
        rng = random.Random(seed)
        Comparing(World(random_workflow(rng, most=12), Truth(seed)), rng).run()
    assert Comparing.n_compared > 50


# -- what is claimed together ----------------------------------------------------------------------


def fan(width: int, *, bound: int | None = None, **middle: Any) -> CompiledWorkflow:
    steps: dict[str, Any] = {"head": {"type": "tool", "tool": "noop"}}
    for n in range(width):
        steps[f"b{n}"] = {"type": "tool", "tool": "noop", "needs": ["head"], **middle}
    steps["join"] = {"type": "tool", "tool": "noop", "needs": [f"b{n}" for n in range(width)]}
    return workflow_of(steps, max_parallel=bound or width)


def after_head(workflow: CompiledWorkflow, lane: Lane) -> Decision:
    truth = Truth(0)
    born = planning.begin(workflow, truth)
    started = planning.claim(workflow, born.snapshot, Ref(0))
    assert started is not None
    fact = Fact(ref=Ref(0), outcome=Succeeded(output=None))
    return planning.settle(workflow, started.snapshot, fact, truth, lane=lane)


def test_short_bodies_are_claimed_together_and_a_message_stands_for_many() -> None:
    decision = after_head(fan(50), Lane(queue="tool", pace=PACE))

    assert len(decision.company) == COMPANY - 1
    assert len(decision.dispatch) == 3  # for the 34 that are left
    assert decision.snapshot.running == COMPANY


@pytest.mark.parametrize("pace", [{}, {"noop": 0.2}], ids=["unknown", "long"])
def test_what_is_not_known_to_be_short_is_claimed_alone(pace: dict[str, float]) -> None:
    decision = after_head(fan(50), Lane(queue="tool", pace=pace))

    assert (decision.claim, decision.company) == (Ref(1), [])
    assert len(decision.dispatch) == MAX_QUEUED


def test_a_company_takes_no_longer_than_a_short_body_may() -> None:
    decision = after_head(fan(50), Lane(queue="tool", pace={"noop": 0.003}))

    assert len(decision.company) == 2


@pytest.mark.parametrize(
    "middle",
    [
        {"effect": {"key": "one"}},
        {"repeat": {"until": "output.done", "max": 2, "delay": "0s"}},
        {"timeout": "2s"},
        {"queue": "other"},
    ],
    ids=["effect", "repeat", "short limit", "queue"],
)
def test_what_may_not_share_is_claimed_alone(middle: dict[str, Any]) -> None:
    decision = after_head(fan(50, **middle), Lane(queue="tool", pace=PACE))

    assert decision.company == []


def test_a_company_keeps_to_the_places_of_the_run() -> None:
    decision = after_head(fan(50, bound=4), Lane(queue="tool", pace=PACE))

    assert (decision.snapshot.running, n_queued(decision.snapshot)) == (4, 0)


def test_nothing_is_claimed_together_behind_any_gate() -> None:
    lane = Lane(queue="tool", pace=PACE, shut=frozenset({"service:x"}))

    assert after_head(fan(50), lane).company == []


def test_longest_path_comes_first_and_what_cannot_share_ends_the_company() -> None:
    steps: dict[str, Any] = {"head": {"type": "tool", "tool": "noop"}}
    for n in range(4):
        steps[f"b{n}"] = {"type": "tool", "tool": "noop", "needs": ["head"]}
    steps["pay"] = {"type": "tool", "tool": "noop", "needs": ["head"], "effect": {"key": "one"}}
    steps["long"] = {"type": "tool", "tool": "noop", "needs": ["head"]}
    steps["last"] = {"type": "tool", "tool": "noop", "needs": ["long", "pay"]}
    workflow = workflow_of(steps)
    decision = after_head(workflow, Lane(queue="tool", pace=PACE))

    assert decision.claim == Ref(workflow.by_key["pay"])  # first of the two with the longest path
    assert decision.company == []


def test_what_a_message_is_on_its_way_for_is_taken_last() -> None:
    workflow = fan(20)
    first = after_head(workflow, Lane(queue="tool", pace=PACE))
    assert len(first.dispatch) == 1
    facts = [
        Fact(ref=ref, outcome=Succeeded(output=None))
        for ref in (first.claim, *first.company)
        if ref is not None
    ]
    lane = Lane(queue="tool", pace=PACE)
    found = planning.settle_many(workflow, first.snapshot, facts, Truth(0), lane=lane)
    assert found is not None
    decision = found[0]

    assert [decision.claim, *decision.company][-1] == first.dispatch[0]
    assert n_queued(decision.snapshot) == 0
