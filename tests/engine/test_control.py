"""Pause, resume and cancel, and what the policies make of a failure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from approvals_app.models import Request
from orchestrator import engine
from orchestrator.clock import new_id
from orchestrator.core.errors import NotFound, StateConflict
from orchestrator.models import Run, Step
from tests.engine import probes
from tests.engine.carrier import Carrier
from tests.engine.runs import (
    count,
    error,
    events,
    fail,
    hook,
    n_timers,
    output,
    payload,
    ran,
    say,
    settle_down,
    started,
    state,
    step,
    steps_of,
)

Turn = Callable[[float], None]


def control(word: str, run_id: Any) -> None:
    act = getattr(engine, f"{word}_run")
    act(run_id, actor="user:boss", reason="because")


def test_a_paused_run_starts_nothing_until_it_is_resumed(carrier: Carrier) -> None:
    run_id = started({"a": count("a"), "b": count("b", needs=["a"])})
    control("pause", run_id)
    carrier.run_all()
    assert (state(run_id), probes.calls["a"]) == ("paused", 0)
    control("resume", run_id)
    carrier.run_all()
    assert output(run_id) == {"b": None}
    assert events(run_id)[2:4] == ["run.paused", "run.resumed"]


def test_a_body_finishes_though_its_run_is_paused(carrier: Carrier, fusion: bool) -> None:
    run_id = started({"a": hook("pause"), "b": count("b", needs=["a"])})
    probes.hooks["pause"] = lambda ctx: control("pause", run_id)
    carrier.run_all()
    assert (state(run_id), probes.calls["b"]) == ("paused", 0)
    assert step(run_id, "a").state == "completed"
    control("resume", run_id)
    carrier.run_all()
    assert state(run_id) == "completed"


def test_a_signal_reaches_a_paused_run(carrier: Carrier) -> None:
    run = ran(carrier, {"a": {"type": "wait", "signal": "go"}, "b": say(1, needs=["a"])})
    control("pause", run.pk)
    engine.send_signal(run.pk, name="go", signal_id="1", payload=1, actor="me")
    carrier.run_all()
    assert steps_of(run) == {"a": "completed", "b": "ready"}
    control("resume", run.pk)
    carrier.run_all()
    assert output(run) == {"b": 1}


def test_pausing_twice_or_ended_runs_and_unknown_ones_is_refused(carrier: Carrier) -> None:
    run_id = started({"a": say(1)})
    control("pause", run_id)
    with pytest.raises(StateConflict):
        control("pause", run_id)
    control("resume", run_id)
    with pytest.raises(StateConflict):
        control("resume", run_id)
    carrier.run_all()
    for word in ("pause", "resume", "cancel"):
        with pytest.raises(StateConflict):
            control(word, run_id)
        with pytest.raises(NotFound):
            control(word, new_id())


def test_cancelling_ends_what_waits_and_is_ready(carrier: Carrier) -> None:
    steps = {
        "w": {"type": "wait", "for": "1h"},
        "g": {"type": "human_gate", "assignees": ["role:finance"]},
        "later": say(1, needs=["w"]),
    }
    run = ran(carrier, steps)
    control("cancel", run.pk)
    assert (state(run), error(run)["class"]) == ("cancelled", "cancelled")
    assert set(steps_of(run).values()) == {"cancelled"}
    assert n_timers(run) == 0
    assert Request.objects.get(run_id=run.pk).state == "cancelled"


@pytest.mark.parametrize(
    "body",
    [
        {"type": "human_gate", "assignees": ["role:finance"]},
        {"type": "sub_workflow", "workflow": "flow", "input": {}},
        say(1, for_each={"items": [1, 2]}),
    ],
    ids=["gate", "child", "loop"],
)
def test_what_would_wait_when_its_run_is_cancelled_is_cancelled(
    carrier: Carrier, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is cancelled between claim and settle, at the named crash point."""
    run_id = started({"a": body}, pins={"flow": "self"})
    at: list[str] = []

    def cancel_once(name: str) -> None:
        if name == "performed" and not at:
            at.append(name)
            control("cancel", run_id)

    monkeypatch.setattr("orchestrator.engine.steps.crash_point", cancel_once)
    carrier.run_all()
    assert at
    run = Run.objects.get(pk=run_id)
    assert (run.state, step(run, "a").state) == ("cancelled", "cancelled")
    assert Run.objects.filter(parent_id=run_id).count() == 0
    assert n_timers(run) == 0
    assert Request.objects.filter(run_id=run_id, state="open").count() == 0


def test_a_body_finishes_though_its_run_is_cancelled(carrier: Carrier) -> None:
    run_id = started({"a": hook("cancel", 7), "b": count("b", needs=["a"])})
    probes.hooks["cancel"] = lambda ctx: control("cancel", run_id)
    carrier.run_all()
    assert (state(run_id), probes.calls["b"]) == ("cancelled", 0)
    assert (step(run_id, "a").state, step(run_id, "a").output) == ("completed", 7)


def test_a_failure_that_pauses_is_tried_again_by_a_resume(carrier: Carrier) -> None:
    run = ran(carrier, {"a": fail(times=1), "z": say(1, needs=["a"])}, on_error="pause")
    assert (state(run), steps_of(run)) == ("paused", {"a": "failed", "z": "blocked"})
    assert payload(run, "run.paused")["error"]["class"] == "permanent"
    control("resume", run.pk)
    carrier.run_all()
    assert output(run) == {"z": 1}
    assert step(run, "a").attempt == 2


def test_a_loop_that_paused_its_run_is_tried_again(carrier: Carrier) -> None:
    steps = {"a": {**fail(times=1), "for_each": {"items": [1, 2, 3]}}}
    run = ran(carrier, steps, on_error="pause")
    assert state(run) == "paused"
    control("resume", run.pk)
    carrier.run_all()
    assert output(run) == {"a": [None, None, None]}


def test_a_failed_fallback_that_paused_its_run_is_tried_again(carrier: Carrier) -> None:
    steps = {"a": fail(fallback="f"), "f": fail(times=2), "z": say(1, needs=["a"])}
    run = ran(carrier, steps, on_error="pause")
    for _ in range(2):
        assert state(run) == "paused"
        control("resume", run.pk)
        carrier.run_all()
    assert output(run) == {"z": 1}
    assert step(run, "a").covered_by == "f"


def test_a_repeat_that_paused_its_run_starts_anew(carrier: Carrier) -> None:
    grown = "${{ previous == null ? 1 : previous + 1 }}"
    run = ran(
        carrier, {"a": say(grown, repeat={"until": "output > 9", "max": 3})}, on_error="pause"
    )
    assert state(run) == "paused"
    control("resume", run.pk)
    carrier.run_all()
    assert (state(run), events(run, "a").count("step.repeated")) == ("paused", 6)


def test_a_step_whose_condition_failed_is_never_started_by_a_resume(carrier: Carrier) -> None:
    steps = {"a": say({}), "b": count("b", needs=["a"], when="input.gone.x")}
    run = ran(carrier, steps, on_error="pause")
    assert (state(run), error(run)["class"]) == ("failed", "condition_error")
    assert probes.calls["b"] == 0


def test_a_paused_retry_goes_on_after_the_resume(carrier: Carrier, turn_time: Turn) -> None:
    run = ran(carrier, {"a": fail("other", times=1)})
    control("pause", run.pk)
    turn_time(60)
    engine.beat_once()
    carrier.run_all()
    assert steps_of(run)["a"] == "ready"
    control("resume", run.pk)
    settle_down(carrier, turn_time)
    assert output(run) == {"a": None}


def test_max_parallel_bounds_the_bodies_of_a_run(carrier: Carrier, one_by_one: None) -> None:
    seen: list[int] = []
    probes.hooks["look"] = lambda ctx: seen.append(Step.objects.filter(state="running").count())
    run_id = started({f"s{n}": hook("look") for n in range(7)}, max_parallel=2)
    assert len(carrier.messages) == 2
    carrier.run_all()
    assert state(run_id) == "completed"
    assert (len(seen), max(seen)) == (7, 1)
