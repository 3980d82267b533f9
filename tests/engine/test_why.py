"""Every open run and step says in one true sentence why it stands where it stands."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from orchestrator import engine
from orchestrator.core.states import RUN_TERMINAL, STEP_TERMINAL
from orchestrator.models import Run
from tests.engine import probes
from tests.engine.carrier import Carrier
from tests.engine.runs import fail, hook, kill, lose, ran, registered, say, started, step
from tests.engine.test_watch import mixed

Turn = Callable[[float], None]

WAIT = {"type": "wait", "signal": "go"}


def why(run: Run | UUID) -> str:
    """The run's sentence, instants and lengths blanked."""
    return _blank(engine.picture(_fresh(run)).why)


def step_why(run: Run | UUID, name: str) -> str:
    picture = engine.picture(_fresh(run))
    return _blank(next(s.sentence for s in picture.steps if s.name == name))


def _fresh(run: Run | UUID) -> Run:
    return Run.objects.get(pk=run.pk if isinstance(run, Run) else run)


def _blank(text: str) -> str:
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "T", text)
    return re.sub(r"\b[\d.]+ (ms|s|min|h)( \d+ (min|h))?\b", "N", text)


def test_a_ready_step_says_how_long_and_on_which_queue(carrier: Carrier, turn_time: Turn) -> None:
    run_id = started({"a": say(1), "b": say(2, needs=["a"])})
    turn_time(30)
    assert why(run_id) == "Step a is ready and waits for a worker on queue tool, for N."
    assert step_why(run_id, "a") == (
        "Ready for N; waits for a worker on queue tool (its message has been on its way for N)."
    )
    assert step_why(run_id, "b") == "Waits for a (ready)."
    carrier.run_all()


def test_ready_steps_on_several_queues_name_them_all(carrier: Carrier) -> None:
    run_id = started({"a": say(1), "b": say(2, queue="agent")})
    assert why(run_id) == (
        "Steps a, b are ready and wait for workers on queues tool, agent, for N."
    )
    carrier.run_all()


def test_a_step_without_a_place_says_so(carrier: Carrier) -> None:
    probes.hooks["die"] = probes.die
    run_id = started({"a": hook("die"), "b": say(1)}, max_parallel=1)
    kill(carrier)
    assert step_why(run_id, "b") == (
        "Ready for N; waits for a free place: 1 of the run's steps may be at work at once."
    )


def test_a_running_step_says_on_which_worker_and_until_when_it_is_leased(carrier: Carrier) -> None:
    probes.hooks["die"] = probes.die
    run_id = started({"a": hook("die")})
    kill(carrier)
    worker = step(run_id, "a").worker
    assert worker
    assert why(run_id) == "Step a is running."
    assert step_why(run_id, "a") == (
        f"Running for N on worker {worker} (attempt 1); its lease holds until T."
    )
    lose(run_id, "a")
    assert "its lease ended at T: the worker is lost" in step_why(run_id, "a")


def test_a_retrying_step_says_when_and_after_what(carrier: Carrier) -> None:
    run = ran(carrier, {"a": fail("other", retry={"max_retries": 3, "base_delay": "60s"})})
    assert why(run) == "Step a failed (LookupError: boom) and is tried again at T (in N)."
    assert step_why(run, "a") == "Attempt 1 failed (LookupError: boom); tried again at T (in N)."


@pytest.mark.parametrize(
    ("wait", "sentence"),
    [
        (WAIT, "Waiting for signal go."),
        ({**WAIT, "timeout": "10m"}, "Waiting for signal go, at most 10m, until T (in N)."),
        ({"type": "wait", "for": "2h"}, "Waiting for 2h, until T (in N)."),
        (
            say(1, repeat={"until": "false", "max": 3, "delay": "1h"}),
            "Pause before the next round, until T (in N).",
        ),
    ],
    ids=["signal", "signal in time", "timer", "repeat"],
)
def test_a_waiting_step_says_for_what(
    carrier: Carrier, wait: dict[str, Any], sentence: str
) -> None:
    run = ran(carrier, {"a": wait, "b": say(1, needs=["a"])})
    assert step_why(run, "a") == sentence
    assert step_why(run, "b") == "Waits for a (waiting)."
    assert why(run) == f"Step a: {sentence[0].lower()}{sentence[1:]}"


def test_a_wait_for_a_child_names_the_run_and_where_it_stands(carrier: Carrier) -> None:
    child = registered({"a": WAIT}, name="child")
    steps = {"sub": {"type": "sub_workflow", "workflow": "child", "input": {}}}
    run = ran(carrier, steps, pins={"child": child.digest})
    child_id = Run.objects.get(parent=run).pk
    assert step_why(run, "sub") == (
        f"Waits for its sub-workflow, run {child_id}, which is waiting."
    )


def test_an_effect_in_doubt_says_which_and_why(carrier: Carrier) -> None:
    probes.hooks["pay"] = lambda _: (_ for _ in ()).throw(LookupError("no answer"))
    run = ran(carrier, {"a": hook("pay", effect={"key": "pay:1"})})
    assert step_why(run, "a") == "Effect pay:1 is in doubt: LookupError: no answer."


def test_a_blocked_step_names_the_needs_that_are_open(carrier: Carrier) -> None:
    steps = {
        "a": WAIT,
        "b": say(1),
        "all": say(2, needs=["a", "b"]),
        "any": say(3, needs=["a", "w"], join="any"),
        "w": {"type": "wait", "for": "1h"},
        "spare": say(4),
        "main": {**WAIT, "fallback": "spare"},
    }
    run = ran(carrier, steps)
    assert step_why(run, "all") == "Waits for a (waiting)."
    assert step_why(run, "any") == "Waits for one of its needs, open are a (waiting), w (waiting)."
    assert step_why(run, "spare") == "Runs only if main gives up."


def test_a_paused_run_says_by_whom_and_why_and_what_still_runs(carrier: Carrier) -> None:
    probes.hooks["die"] = probes.die
    run_id = started({"a": hook("die"), "b": say(1)})
    kill(carrier)
    engine.pause_run(run_id, actor="user:ann", reason="month end")
    assert why(run_id) == (
        "Paused by user:ann: month end. Nothing new starts until somebody resumes it."
        " Step a still runs to the end."
    )
    assert step_why(run_id, "b") == "Ready for N; it starts when the run is resumed."


def test_a_run_that_is_being_undone_says_how_far_it_is(carrier: Carrier) -> None:
    undo = {"compensate": {"tool": "probe.fail", "input": {"times": 1, "kind": "other"}}}
    run = ran(carrier, {"a": say(1, **undo), "b": fail(needs=["a"])})
    sentence = (
        "Being undone; its compensation: attempt 1 failed (LookupError: boom);"
        " tried again at T (in N)."
    )
    assert step_why(run, "a") == sentence
    assert why(run) == f"What was done is being undone, last effect first. Step a: {sentence}"


def test_the_items_of_a_loop_are_counted(carrier: Carrier) -> None:
    run = ran(carrier, {"a": {**WAIT, "for_each": {"items": [1, 2, 3], "max_parallel": 2}}})
    assert step_why(run, "a") == "Its items are at work: 1 blocked, 2 waiting."
    assert step_why(run, "a[0]") == "Waiting for signal go."


def test_whatever_is_open_has_a_sentence_and_whatever_ended_has_none(
    carrier: Carrier, turn_time: Turn
) -> None:
    run_ids = mixed()
    seen: set[str] = set()
    for _ in range(12):
        for _ in range(9):
            if carrier.messages:
                carrier.run_one()
        for run in Run.objects.filter(pk__in=run_ids):
            picture = engine.picture(run)
            assert run.state in RUN_TERMINAL or picture.why.endswith(".")
            for shown in picture.steps:
                assert bool(shown.sentence) == (shown.state not in STEP_TERMINAL), shown
                assert not shown.sentence or shown.sentence.endswith("."), shown
                seen.add(shown.state)
        if not carrier.messages:
            engine.beat_once()
            turn_time(10)
    assert {"ready", "blocked", "retrying", "waiting", "running"} <= seen
