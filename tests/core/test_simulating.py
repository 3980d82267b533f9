"""A run on paper, over any document and any answers: it comes to an end, and always to the same."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from orchestrator.core.compiled import CompiledWorkflow
from orchestrator.core.decision import Decision, Ref
from orchestrator.core.errors import ErrorClass, StepError
from orchestrator.core.outcomes import (
    Failed,
    Outcome,
    Routed,
    StartChild,
    Succeeded,
    UndoChildren,
    Waiting,
)
from orchestrator.core.replay_rows import Row
from orchestrator.core.settling import Expanded
from orchestrator.core.simulating import Paper, Parked, Told
from orchestrator.core.snapshot import QUEUED, Code
from orchestrator.core.states import STEP_TERMINAL, RunState
from tests.core.planning_world import Truth, random_workflow, workflow_of
from tests.core.test_planning_properties import shown

laws = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
seeds = st.integers(min_value=0, max_value=2**32)


class Stage:
    """Answers by a seed: the same question gets the same answer."""

    def __init__(self, workflow: CompiledWorkflow, seed: int, *, fails: float = 0.25) -> None:
        self.workflow, self.seed, self.fails = workflow, seed, fails
        self.conditions = Truth(seed)
        self.n_asked = 0
        self.running = self.most = 0
        self.paper = Paper(workflow, self)

    def count(self) -> None:
        self.n_asked += 1
        assert self.n_asked < 5_000

    def _rng(self, *about: Any) -> random.Random:
        return random.Random(f"{self.seed}{about}")

    def body(self, ref: Ref, row: Row, at: float) -> Told:
        self.running += 1
        self.most = max(self.most, self.running)
        rng = self._rng("body", ref, row.attempt)
        return Told(outcome=self._outcome(ref, row, rng), seconds=rng.choice([0, 1, 7.5]))

    def _outcome(self, ref: Ref, row: Row, rng: random.Random) -> Outcome | Expanded:
        step = self.workflow.steps[ref.position]
        if step.for_each is not None and ref.item is None:
            if step.undoes is None:
                return Expanded(total=rng.randint(0, 4))
            only = self.paper.rows.completed_items(step.undoes)
            return Expanded(total=len(only), only=only)
        if rng.random() < self.fails:
            return self._failure(rng)
        match step.type:
            case "router":
                return Routed(routes=(rng.choice(["r0", "r1"]),), why="so")
            case "wait":
                return Waiting(kind="signal", key="go")
            case "human_gate":
                return Waiting(kind="person")
            case "sub_workflow":
                return StartChild(name="child", input=None)
            case "undo_child":
                return UndoChildren(name="child")
            case _:
                return Succeeded(output={"n": row.round})

    def _failure(self, rng: random.Random) -> Failed:
        kind = rng.choice([ErrorClass.TRANSIENT, ErrorClass.PERMANENT, ErrorClass.TIMEOUT])
        return Failed(error=StepError(error_class=kind, message="no"))

    def wait(self, ref: Ref, row: Row, parked: Parked, at: float) -> Told | None:
        rng = self._rng("wait", ref, row.attempt)
        if rng.random() < 0.1:
            return None
        outcome = self._failure(rng) if rng.random() < self.fails else Succeeded(output={})
        return Told(outcome=outcome, seconds=rng.choice([0, 3600]))

    def answered(self, ref: Ref, outcome: Outcome | Expanded) -> None:
        pass

    def decided(self, ref: Ref, decision: Decision, outcome: Outcome | Expanded) -> None:
        self.running = decision.snapshot.running

    def close(self, position: int) -> None:
        pass

    def closed(self, position: int, decision: Decision) -> None:
        pass

    def end(self, decision: Decision) -> None:
        pass


@laws
@given(seeds)
def test_any_run_on_paper_ends_or_stands_and_nothing_is_left_undone(seed: int) -> None:
    workflow = random_workflow(random.Random(seed))
    note(shown(workflow))
    stage = Stage(workflow, seed)
    paper = stage.paper
    paper.play()

    codes = {raw & ~QUEUED for raw in paper.snapshot.codes}
    rows = {ref: row.state for ref, row in _rows(paper).items()}
    assert stage.most <= workflow.max_parallel
    assert Code.RUNNING not in codes
    if paper.ended:
        assert set(rows.values()) <= STEP_TERMINAL, rows
    else:
        assert paper.state in (RunState.PAUSED, RunState.WAITING, RunState.COMPENSATING)
        assert Code.READY not in codes or paper.state is RunState.PAUSED


@settings(parent=laws, max_examples=40)
@given(seeds)
def test_the_same_answers_give_the_same_history(seed: int) -> None:
    workflow = random_workflow(random.Random(seed), most=15)
    first, second = Stage(workflow, seed), Stage(workflow, seed)
    first.paper.play()
    second.paper.play()

    assert first.paper.history == second.paper.history
    assert first.paper.now == second.paper.now


def _rows(paper: Paper) -> dict[Ref, Row]:
    found = {Ref(position): row for position, row in paper.rows.plain.items()}
    for position, items in paper.rows.items.items():
        found |= {Ref(position, index): row for index, row in items.items()}
    return found


def test_time_jumps_from_one_thing_to_the_next() -> None:
    retry = {"max_retries": 2, "base_delay": "10s", "on": ["transient"]}
    workflow = workflow_of({"a": {"type": "tool", "tool": "noop", "retry": retry}})

    class Fails(Stage):
        def body(self, ref: Ref, row: Row, at: float) -> Told:
            error = StepError(error_class=ErrorClass.TRANSIENT, message="no")
            return Told(outcome=Failed(error=error), seconds=1)

    stage = Fails(workflow, 1)
    stage.paper.play()

    # 3 attempts of 1 s; delays of 10 and 20 s, each with half of the base as jitter
    assert stage.paper.now == 3 + (10 + 5) + (20 + 5)
    assert stage.paper.state is RunState.FAILED


def test_a_wait_that_nothing_ends_is_ended_by_the_runs_own_time() -> None:
    class Silent(Stage):
        def wait(self, ref: Ref, row: Row, parked: Parked, at: float) -> Told | None:
            return None

    step = {"a": {"type": "wait", "signal": "go"}}
    ends, stands = Silent(workflow_of(step, timeout="2h"), 1, fails=0), Silent(workflow_of(step), 1)
    for stage in (ends, stands):
        stage.paper.play()

    assert (ends.paper.state, ends.paper.now, ends.paper.waited) == (RunState.TIMED_OUT, 7200, 7200)
    assert (stands.paper.state, stands.paper.waiting_for) == (RunState.WAITING, "signal")


def test_work_beyond_the_runs_time_is_cut_off() -> None:
    class Slow(Stage):
        def body(self, ref: Ref, row: Row, at: float) -> Told:
            return Told(outcome=Succeeded(output={}), seconds=3000)

    steps = {
        "a": {"type": "tool", "tool": "noop"},
        "b": {"type": "tool", "tool": "noop", "needs": ["a"]},
    }
    stage = Slow(workflow_of(steps), 1)  # one hour of working time when none is written
    stage.paper.play()

    assert (stage.paper.state, stage.paper.now) == (RunState.TIMED_OUT, 3600)
    assert stage.paper.worked == 3600


def test_no_more_run_at_once_than_may() -> None:
    steps = {f"s{n}": {"type": "tool", "tool": "noop"} for n in range(8)}
    stage = Stage(workflow_of(steps, max_parallel=3), 1, fails=0)
    stage.paper.play()

    assert (stage.paper.state, stage.most) == (RunState.COMPLETED, 3)
