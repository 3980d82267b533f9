"""Single decisions, each with its reason; the laws for all runs are in test_planning_properties."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.core import planning
from orchestrator.core.decision import Ref
from orchestrator.core.errors import ConditionError, ErrorClass, StateConflict, StepError
from orchestrator.core.outcomes import (
    EndRun,
    Failed,
    Outcome,
    StartChild,
    Succeeded,
    Waiting,
)
from orchestrator.core.settling import Expanded
from orchestrator.core.snapshot import Code
from orchestrator.core.states import RunState, StepState
from tests.core.planning_world import Truth, World, workflow_of

NOOP = {"type": "tool", "tool": "noop", "retry": {"max_retries": 0}}
DONE = Succeeded(output={"n": 1})
BROKE = Failed(error=StepError(error_class=ErrorClass.PERMANENT, message="broke"))
PARKED = Waiting(kind="signal", key="go")
LOST = Failed(error=StepError(error_class=ErrorClass.WORKER_LOST, message="gone"))


class Answers(Truth):
    """Conditions that all hold, but for the edges and steps that are named."""

    def __init__(self, *, broken: tuple[str, ...] = (), false: tuple[str, ...] = ()) -> None:
        super().__init__(seed=0)
        self.broken, self.false, self.keys = broken, false, list[str]()

    def _answer(self, *about: Any) -> bool:
        name = f"{about[0]} {self.keys[about[1]]}" if about[0] == "step" else f"edge {about[1]}"
        if name in self.broken:
            raise ConditionError(name)
        return name not in self.false


class Run(World):
    """A world spoken to by step keys."""

    def refer(self, key: str, item: int | None = None) -> Ref:
        return Ref(self.workflow.by_key[key], item)

    def go(self, key: str, outcome: Outcome | Expanded, item: int | None = None) -> None:
        """Claim and settle."""
        ref = self.refer(key, item)
        if self.rows[ref].state is StepState.READY:
            assert self.claim(ref), f"{key} cannot be claimed"
        self.settle(ref, outcome)

    def lose(self, key: str) -> None:
        assert self.claim(self.refer(key))
        self.settle(self.refer(key), LOST, lost=True)

    def fate(self, key: str) -> str:
        return str(self.snapshot.state(self.workflow.by_key[key]))


def run_of(steps: dict[str, Any], truth: Answers | None = None, **more: Any) -> Run:
    filled = {key: {**NOOP, **step} for key, step in steps.items()}
    answers = truth or Answers()
    answers.keys = list(filled)
    return Run(workflow_of(filled, **more), answers)


def test_a_fallback_of_a_fallback_stands_for_both() -> None:
    run = run_of({"a": {"fallback": "b"}, "b": {"fallback": "c"}, "c": {}, "z": {"needs": ["a"]}})
    run.go("a", BROKE)
    run.go("b", BROKE)
    run.go("c", DONE)
    run.go("z", DONE)
    assert run.state is RunState.COMPLETED


def test_a_fallback_whose_condition_is_false_leaves_the_failure_to_the_policy() -> None:
    run = run_of({"a": {"fallback": "b"}, "b": {"when": "input.go"}}, Answers(false=("step b",)))
    run.go("a", BROKE)
    assert run.state is RunState.FAILED


def test_the_unused_fallback_is_skipped() -> None:
    run = run_of({"a": {"fallback": "b"}, "b": {}})
    run.go("a", DONE)
    assert (run.state, run.fate("b")) == (RunState.COMPLETED, "skipped")


def test_a_resumed_step_may_use_its_fallback_once_more() -> None:
    run = run_of({"a": {"fallback": "b"}, "b": {}}, on_error="pause")
    for _ in range(2):
        run.go("a", BROKE)
        run.go("b", BROKE)
        assert run.state is RunState.PAUSED
        run.resume()
    run.go("a", BROKE)
    run.go("b", DONE)
    assert run.state is RunState.COMPLETED


def test_a_resumed_step_that_completes_settles_the_edges_of_its_failed_fallback() -> None:
    steps = {"a": {"fallback": "b"}, "b": {}, "z": {"needs": [{"step": "b", "on": "failed"}]}}
    run = run_of(steps, on_error="pause")
    run.go("a", BROKE)
    run.go("b", BROKE)
    assert run.fate("z") == "blocked"
    run.resume()
    run.go("a", DONE)
    run.go("z", DONE)
    assert run.state is RunState.COMPLETED


def test_late_cancel_spares_the_fallback_that_works_for_its_owners_edges() -> None:
    steps = {
        "a": {"fallback": "f"},
        "f": {},
        "b": {},
        "join": {"needs": ["f", "b"], "join": "any", "late": "cancel"},
        "z": {"needs": ["a"]},
    }
    run = run_of(steps)
    run.go("a", BROKE)
    run.go("b", DONE)
    run.go("f", DONE)
    run.go("join", DONE)
    run.go("z", DONE)
    assert run.state is RunState.COMPLETED


def test_late_cancel_ends_the_branches_that_nobody_else_needs() -> None:
    steps = {
        "fast": {},
        "slow": {},
        "slower": {"needs": ["slow"]},
        "join": {"needs": ["fast", "slower"], "join": "any", "late": "cancel"},
    }
    run = run_of(steps)
    assert run.claim(run.refer("slow"))
    run.go("fast", DONE)
    assert (run.fate("slow"), run.fate("slower")) == ("cancelled", "cancelled")


@pytest.mark.parametrize("wish", [PARKED, StartChild(name="child", input={}), Expanded(total=3)])
def test_what_would_wait_while_the_run_is_ending_is_cancelled(wish: Outcome | Expanded) -> None:
    run = run_of({"a": {"for_each": {"items": "${{ input.items }}"}}, "b": {}})
    assert run.claim(run.refer("a"))
    run.cancel()
    assert run.state is RunState.RUNNING
    run.settle(run.refer("a"), wish)
    assert (run.state, run.fate("a")) == (RunState.CANCELLED, "cancelled")


def test_an_item_that_would_wait_while_the_run_is_ending_is_cancelled() -> None:
    run = run_of({"a": {"for_each": {"items": "${{ input.items }}"}}})
    run.go("a", Expanded(total=2))
    assert run.claim(run.refer("a", 0))
    run.cancel()
    run.settle(run.refer("a", 0), PARKED)
    assert run.state is RunState.CANCELLED


def test_an_item_that_ends_the_run_ends_its_loop_with_it() -> None:
    run = run_of({"a": {"for_each": {"items": "${{ input.items }}"}}})
    run.go("a", Expanded(total=2))
    run.go("a", EndRun(output={}, outcome="rejected"), item=0)
    assert (run.state, run.fate("a")) == (RunState.COMPLETED, "cancelled")


def test_a_failure_while_the_run_is_ending_asks_no_policy() -> None:
    run = run_of({"a": {"on_error": "pause"}})
    assert run.claim(run.refer("a"))
    run.cancel()
    run.settle(run.refer("a"), BROKE)
    assert run.state is RunState.CANCELLED
    assert "run.paused" not in run.events


def test_a_resume_never_starts_a_step_whose_condition_failed() -> None:
    steps = {"a": {}, "b": {}, "z": {"needs": [{"step": "a", "when": "output.x"}, "b"]}}
    run = run_of(steps, Answers(broken=("edge 0",)), on_error="pause")
    assert run.claim(run.refer("b"))
    run.go("a", DONE)
    assert run.fate("z") == "failed"
    run.settle(run.refer("b"), DONE)
    assert run.state is RunState.FAILED


def test_an_optional_step_whose_condition_fails_counts_as_skipped_in_its_row_too() -> None:
    steps = {"a": {}, "b": {"needs": ["a"], "when": "input.x", "optional": True}}
    run = run_of(steps, Answers(broken=("step b",)))
    run.go("a", DONE)
    assert run.state is RunState.COMPLETED
    assert run.rows[run.refer("b")].state is StepState.SKIPPED


def test_an_optional_step_counts_as_skipped_once_its_fallback_has_failed() -> None:
    run = run_of({"a": {"optional": True, "fallback": "b"}, "b": {}})
    run.go("a", BROKE)
    run.go("b", BROKE)
    assert (run.state, run.fate("a"), run.fate("b")) == (RunState.COMPLETED, "skipped", "failed")


def test_waking_one_item_leaves_the_count_of_the_others_alone() -> None:
    repeat = {"until": "output.done", "max": 3, "delay": "5s"}
    retry = {"max_retries": 2, "base_delay": "1s"}
    step = {"for_each": {"items": "${{ input.items }}"}, "repeat": repeat, "retry": retry}
    run = run_of({"a": step}, Answers(false=("edge 0",)))
    run.truth._answer = lambda *about: False  # type: ignore[method-assign]
    run.go("a", Expanded(total=2))
    transient = StepError(error_class=ErrorClass.TRANSIENT, message="later")
    run.go("a", Failed(error=transient), item=0)
    run.go("a", DONE, item=1)
    run.wake(run.refer("a", 1))
    loop = run.snapshot.loops[0]
    assert (loop.retrying, loop.waiting) == (1, 0)


def test_a_step_that_lost_three_workers_has_failed() -> None:
    run = run_of({"a": {}})
    for _ in range(3):
        run.lose("a")
    assert run.state is RunState.FAILED


def test_a_message_is_a_claim_only_while_the_step_is_ready() -> None:
    run = run_of({"a": {}, "b": {"needs": ["a"]}})
    a, b = run.refer("a"), run.refer("b")
    assert planning.claim(run.workflow, run.snapshot, b) is None
    assert run.claim(a)
    assert planning.claim(run.workflow, run.snapshot, a) is None


def test_a_paused_run_starts_nothing_and_forgets_nothing() -> None:
    run = run_of({"a": {}, "b": {"needs": ["a"]}})
    assert run.claim(run.refer("a"))
    run.pause()
    run.settle(run.refer("a"), DONE)
    assert not run.claim(run.refer("b"))
    run.resume()
    run.go("b", DONE)
    assert run.state is RunState.COMPLETED


def test_pausing_twice_and_resuming_what_runs_are_refused() -> None:
    run = run_of({"a": {}})
    with pytest.raises(StateConflict):
        run.resume()
    run.pause()
    with pytest.raises(StateConflict):
        run.pause()


def test_what_lies_behind_an_unhandled_failure_is_cancelled() -> None:
    run = run_of({"a": {}, "b": {"needs": ["a"]}, "c": {"needs": ["b"]}})
    run.go("a", BROKE)
    assert run.state is RunState.FAILED
    assert (run.fate("b"), run.fate("c")) == ("cancelled", "cancelled")


def test_a_skip_runs_through_two_thousand_steps() -> None:
    keys = [f"k{n:04}" for n in range(2000)]
    steps = {key: {"needs": keys[n - 1 : n] if n else []} for n, key in enumerate(keys)}
    steps[keys[0]]["when"] = "input.x"
    run = run_of(steps, Answers(false=(f"step {keys[0]}",)))
    assert run.state is RunState.COMPLETED
    assert set(run.snapshot.codes) == {Code.SKIPPED}


def test_the_waits_of_a_run_are_told_by_what_needs_a_person_first() -> None:
    run = run_of({"a": {}, "b": {}})
    run.go("a", Waiting(kind="timer"))
    run.go("b", Waiting(kind="person", key="b"))
    assert (run.state, run.waiting_for) == (RunState.WAITING, "person")


UNDO = {"compensate": {"tool": "noop", "retry": {"max_retries": 0}}}


def test_a_run_that_is_being_undone_says_so_until_it_ends() -> None:
    run = run_of({"a": UNDO, "b": {"needs": ["a"]}})
    run.go("a", DONE)
    run.go("b", BROKE)
    assert (run.state, run.fate("a")) == (RunState.COMPENSATING, "compensating")
    assert run.claim(run.refer("undo:a"))
    assert run.state is RunState.COMPENSATING
    run.settle(run.refer("undo:a"), DONE)
    assert (run.state, run.fate("a")) == (RunState.FAILED, "compensated")


def test_a_step_whose_compensation_fails_stays_done() -> None:
    run = run_of({"a": UNDO, "b": {"needs": ["a"]}})
    run.go("a", DONE)
    run.go("b", BROKE)
    run.go("undo:a", BROKE)
    assert (run.state, run.fate("a")) == (RunState.FAILED, "completed")


def test_a_time_limit_does_not_stop_the_undoing() -> None:
    run = run_of({"a": UNDO, "b": {"needs": ["a"]}})
    run.go("a", DONE)
    run.go("b", BROKE)
    run.time_out()
    run.go("undo:a", DONE)
    assert (run.state, run.fate("a")) == (RunState.FAILED, "compensated")


@pytest.mark.parametrize(
    ("needs", "join", "reason"),
    [
        (["a", "b"], "strict", "join_unmet"),
        (["a", "b"], {"at_least": 2}, "join_unmet"),
        (["b"], "all", "no_branch_taken"),
        (["b"], "any", "no_branch_taken"),
    ],
)
def test_a_step_is_skipped_as_soon_as_its_join_is_lost_and_says_how(
    needs: list[str], join: Any, reason: str
) -> None:
    """While ``a`` has not ended, it may still be taken: the join is what cannot be met."""
    steps = {"a": {}, "b": {"when": "input.go"}, "c": {"needs": needs, "join": join}}
    run = run_of(steps, Answers(false=("step b",)))
    skipped = [
        e for e in planning.begin(run.workflow, run.truth).events if e.type == "step.skipped"
    ]
    assert [e.payload["reason"] for e in skipped if e.ref == run.refer("c")] == [reason]
