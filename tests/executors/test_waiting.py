from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.core.errors import ErrorClass
from orchestrator.core.outcomes import Answer, Failed, StartChild, Succeeded, Waiting
from orchestrator.executors.sub_workflow import SubWorkflowExecutor
from orchestrator.executors.wait import WaitExecutor
from tests.executors.builders import step_context

PAID = {"type": "wait", "signal": "paid", "timeout": "7d"}


def wait(config, **context):
    return WaitExecutor().execute(step_context(config, **context))


def test_a_wait_for_a_while():
    outcome = wait({"type": "wait", "for": "10m"})

    assert outcome == Waiting(kind="timer", due=timedelta(minutes=10), why="Waiting for 10m.")
    assert WaitExecutor().resume({"for": "10m"}, Answer(kind="timer"), upstream=None) == Succeeded(
        output={}
    )


@pytest.mark.parametrize("written", ["2030-05-01T09:00:00Z", "2030-05-01T11:00:00+02:00"])
def test_a_wait_until_an_instant(written):
    outcome = wait({"type": "wait", "until": "${{ input.at }}"}, scope={"input": {"at": written}})

    assert isinstance(outcome, Waiting)
    assert outcome.kind == "timer"
    assert outcome.due == datetime(2030, 5, 1, 9, tzinfo=UTC)


def test_a_wait_until_a_computed_instant():
    template = "${{ timestamp(input.at) + duration('1h') }}"

    outcome = wait(
        {"type": "wait", "until": template}, scope={"input": {"at": "2030-05-01T09:00:00Z"}}
    )

    assert isinstance(outcome, Waiting)
    assert outcome.due == datetime(2030, 5, 1, 10, tzinfo=UTC)


@pytest.mark.parametrize("written", ["tomorrow", "2030-05-01T09:00:00", "", "7"])
def test_an_instant_that_cannot_be_read_is_a_condition_error(written):
    outcome = wait({"type": "wait", "until": "${{ input.at }}"}, scope={"input": {"at": written}})

    assert isinstance(outcome, Failed)
    assert outcome.error.error_class is ErrorClass.CONDITION_ERROR
    assert "until" in outcome.error.message


def test_a_wait_for_a_signal_gives_its_payload():
    outcome = wait(PAID)

    assert isinstance(outcome, Waiting)
    assert (outcome.kind, outcome.key, outcome.due) == ("signal", "paid", timedelta(days=7))
    resumed = WaitExecutor().resume(
        PAID, Answer(kind="signal", payload={"amount": 5}), upstream=None
    )
    assert resumed == Succeeded(output={"amount": 5})


def test_a_signal_without_timeout_waits_for_ever():
    outcome = wait({"type": "wait", "signal": "paid"})

    assert isinstance(outcome, Waiting)
    assert outcome.due is None


def test_a_signal_that_does_not_come_in_time_fails_the_step():
    outcome = WaitExecutor().resume(PAID, Answer(kind="timer"), upstream=None)

    assert isinstance(outcome, Failed)
    assert outcome.error.error_class is ErrorClass.TIMEOUT
    assert outcome.error.message == "signal paid did not come within 7d"


def test_a_signal_that_does_not_come_in_time_may_be_passed_over():
    config = {**PAID, "on_timeout": "continue"}

    assert WaitExecutor().resume(config, Answer(kind="timer"), upstream=None) == Succeeded(
        output=None
    )


def test_a_sub_workflow_starts_the_child_named_in_the_document():
    outcome = SubWorkflowExecutor().execute(
        step_context({"type": "sub_workflow", "workflow": "ship@3"}, input={"order_id": "A"})
    )

    assert outcome == StartChild(name="ship@3", input={"order_id": "A"})


def test_a_completed_childs_output_is_the_steps():
    answer = Answer(kind="child", payload={"state": "completed", "output": [1], "id": "r"})

    assert SubWorkflowExecutor().resume({"workflow": "ship"}, answer, upstream=None) == Succeeded(
        output=[1]
    )


@pytest.mark.parametrize("state", ["failed", "timed_out", "cancelled"])
def test_a_child_that_did_not_complete_fails_the_step(state):
    error = {"class": "permanent", "message": "no stock"}
    answer = Answer(kind="child", payload={"state": state, "error": error, "id": "r-1"})

    outcome = SubWorkflowExecutor().resume({"workflow": "ship"}, answer, upstream=None)

    assert isinstance(outcome, Failed)
    assert outcome.error.error_class is ErrorClass.CHILD_FAILED
    assert outcome.error.message == f"child workflow ship ended {state}: no stock"
    assert outcome.error.details == {"child": "r-1", "state": state, "error": error}
