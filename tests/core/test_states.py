"""The two tables of legal moves."""

from __future__ import annotations

from orchestrator.core.states import (
    RUN_MOVES,
    RUN_TERMINAL,
    STEP_MOVES,
    RunState,
    StepState,
    may_move_run,
    may_move_step,
    may_repair_run,
    may_repair_step,
)


def test_every_state_has_a_row() -> None:
    assert set(RUN_MOVES) == set(RunState)
    assert set(STEP_MOVES) == set(StepState)


def test_a_run_that_is_over_never_moves_again() -> None:
    for old in RUN_TERMINAL:
        assert not any(may_move_run(old, new) for new in RunState)


def test_a_completed_step_can_only_be_undone() -> None:
    allowed = {new for new in StepState if may_move_step(StepState.COMPLETED, new)}
    assert allowed == {StepState.COMPENSATING}


def test_skipped_cancelled_and_compensated_steps_stay_so() -> None:
    for old in (StepState.SKIPPED, StepState.CANCELLED, StepState.COMPENSATED):
        assert not any(may_move_step(old, new) for new in StepState)


def test_only_what_is_ready_or_becomes_so_now_may_run() -> None:
    sources = {old for old in StepState if may_move_step(old, StepState.RUNNING)}
    assert StepState.COMPLETED not in sources
    assert StepState.RUNNING not in sources


def test_every_open_run_can_be_cancelled_failed_and_timed_out() -> None:
    for old in set(RunState) - RUN_TERMINAL:
        for end in RUN_TERMINAL - {RunState.COMPLETED}:
            assert may_move_run(old, end)


def test_a_repair_takes_up_what_failed_or_was_cancelled_and_nothing_else() -> None:
    ends = {old for old in RUN_TERMINAL if may_repair_run(old, RunState.RUNNING)}
    assert ends == {RunState.FAILED, RunState.CANCELLED}


def test_a_repair_undoes_no_undoing() -> None:
    for old in (StepState.COMPENSATING, StepState.COMPENSATED):
        assert not may_repair_step(old, StepState.READY)
        assert not may_repair_step(old, StepState.BLOCKED)
