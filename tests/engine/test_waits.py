"""Timers, signals, gates and time limits: never early, once, whatever comes first."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from approvals_app.decisions import decide, parse_body
from approvals_app.models import Request
from approvals_app.policy import Person
from orchestrator import engine
from orchestrator.core.errors import InvalidRequest, StateConflict
from orchestrator.engine.reading import database_now
from orchestrator.models import Run, Signal
from tests.engine import probes
from tests.engine.carrier import Carrier
from tests.engine.runs import (
    TENANT,
    error,
    events,
    hook,
    n_timers,
    output,
    payload,
    ran,
    registered,
    say,
    start,
    started,
    state,
    step,
    steps_of,
)

Turn = Callable[[float], None]
GO = {"type": "wait", "signal": "go"}


def send(run: Run, value: Any = None, *, name: str = "go", key: str = "1") -> Any:
    return engine.send_signal(run.pk, name=name, signal_id=key, payload=value, actor="user:me")


def test_a_wait_for_a_time_is_never_early_and_ends_once(carrier: Carrier, turn_time: Turn) -> None:
    run = ran(carrier, {"a": {"type": "wait", "for": "2h"}, "z": say(1, needs=["a"])})
    assert (state(run), run.waiting_for) == ("waiting", "timer")
    turn_time(7190)
    engine.beat_once()
    assert steps_of(run)["a"] == "waiting"
    turn_time(20)
    engine.beat_once()
    engine.beat_once()
    carrier.run_all()
    assert output(run) == {"z": 1}
    assert events(run).count("timer.fired") == 1
    assert n_timers(run) == 0


def test_a_wait_until_an_instant_goes_by_the_databases_clock(
    carrier: Carrier, turn_time: Turn
) -> None:
    due = (database_now() + timedelta(hours=1)).isoformat()
    run = ran(carrier, {"a": {"type": "wait", "until": "${{ input.due }}"}}, {"due": due})
    turn_time(3500)
    engine.beat_once()
    assert state(run) == "waiting"
    turn_time(200)
    engine.beat_once()
    assert state(run) == "completed"


def test_an_instant_that_cannot_be_read_is_a_condition_error(carrier: Carrier) -> None:
    run = ran(carrier, {"a": {"type": "wait", "until": "tomorrow"}})
    assert error(run)["class"] == "condition_error"


def test_a_signal_ends_its_wait_with_its_payload(carrier: Carrier) -> None:
    run = ran(carrier, {"a": GO, "z": say("${{ steps.a.output.n }}", needs=["a"])})
    result = send(run, {"n": 5})
    assert (result.applied, result.duplicate) == (True, False)
    assert result.transition == "a: waiting -> completed"
    carrier.run_all()
    assert output(run) == {"z": 5}


def test_a_signal_may_come_before_its_waiter(carrier: Carrier) -> None:
    run_id = started({"a": say(1), "b": {**GO, "needs": ["a"]}})
    run = Run.objects.get(pk=run_id)
    assert send(run, "early").applied is False
    carrier.run_all()
    assert output(run) == {"b": "early"}
    assert Signal.objects.get(run=run).consumed_by == step(run, "b").pk


def test_one_signal_is_consumed_by_the_longest_waiting_alone(carrier: Carrier) -> None:
    run = ran(carrier, {"a": GO, "b": GO})
    first, second = sorted("ab", key=lambda key: step(run, key).started_at)
    send(run, 1)
    assert (steps_of(run)[first], steps_of(run)[second]) == ("completed", "waiting")
    send(run, 2, key="2")
    assert output(run) == {first: 1, second: 2}


def test_the_same_signal_again_is_no_news(carrier: Carrier) -> None:
    run = ran(carrier, {"a": GO, "b": GO})
    send(run, {"x": 1, "y": 2})
    again = send(run, {"y": 2, "x": 1})
    assert (again.duplicate, again.applied) == (True, True)
    assert Signal.objects.filter(run=run).count() == 1
    assert state(run) == "waiting"


def test_the_same_id_with_another_payload_is_refused(carrier: Carrier) -> None:
    run = ran(carrier, {"a": GO, "b": GO})
    send(run, 1)
    with pytest.raises(InvalidRequest) as refused:
        send(run, 2)
    assert refused.value.code == "signal_id_reused"


def test_unknown_names_and_payloads_against_the_schema_are_refused(carrier: Carrier) -> None:
    run = ran(carrier, {"a": {**GO, "schema": {"type": "integer"}}})
    for name, value, code in (("gone", 1, "unknown_signal"), ("go", "x", "payload_invalid")):
        with pytest.raises(InvalidRequest) as refused:
            send(run, value, name=name)
        assert refused.value.code == code
    assert Signal.objects.count() == 0


def test_no_signal_reaches_a_run_that_is_over(carrier: Carrier) -> None:
    run = ran(carrier, {"a": GO})
    send(run, 1)
    assert send(run, 1).duplicate
    with pytest.raises(StateConflict):
        send(run, 1, key="2")


@pytest.mark.parametrize(("reaction", "expected"), [("continue", "completed"), ("fail", "failed")])
def test_a_signal_that_does_not_come_in_time(
    carrier: Carrier, turn_time: Turn, reaction: str, expected: str
) -> None:
    retry = {"max_retries": 0}
    late = {**GO, "timeout": "1h", "on_timeout": reaction, "retry": retry}
    run = ran(carrier, {"a": late})
    turn_time(3601)
    engine.beat_once()
    assert state(run) == expected
    assert steps_of(run)["a"] == ("completed" if reaction == "continue" else "timed_out")


GATE = {"type": "human_gate", "assignees": ["role:finance"]}


def press(run: Run, choice: str = "approve", by: str = "user:ann") -> Any:
    request = Request.objects.filter(run_id=run.pk).latest("pk")
    return decide(
        request.pk,
        parse_body({"decision": choice, "notes": "ok"}),
        tenant=TENANT,
        person=Person(actor=by, roles=frozenset({"finance"})),
    )


def test_a_gate_waits_for_a_person_and_goes_on_when_approved(carrier: Carrier) -> None:
    run = ran(carrier, {"g": GATE, "z": say("${{ steps.g.output.decision }}", needs=["g"])})
    assert (state(run), run.waiting_for) == ("waiting", "person")
    press(run)
    carrier.run_all()
    assert output(run) == {"z": "approved"}
    assert payload(run, "gate.decided") == {"decision": "approved", "by": "user:ann"}


@pytest.mark.parametrize(
    ("reaction", "expected", "outcome"),
    [
        ("fail", "failed", ""),
        ("end", "completed", "rejected"),
        ("continue", "completed", "succeeded"),
    ],
)
def test_a_rejection_does_what_the_gate_says(
    carrier: Carrier, reaction: str, expected: str, outcome: str
) -> None:
    run = ran(carrier, {"g": {**GATE, "on_reject": reaction}, "z": say(1, needs=["g"])})
    press(run, "reject")
    carrier.run_all()
    assert (state(run), Run.objects.get(pk=run.pk).outcome) == (expected, outcome)
    assert payload(run, "gate.decided") == {"decision": "rejected", "by": "user:ann"}
    if reaction == "fail":
        assert error(run)["class"] == "rejected"


def test_a_gate_that_expires_is_rejected_by_the_system(carrier: Carrier, turn_time: Turn) -> None:
    run = ran(carrier, {"g": {**GATE, "timeout": "1h"}})
    turn_time(3601)
    engine.beat_once()
    assert (state(run), error(run)["class"]) == ("failed", "rejected")
    assert payload(run, "gate.decided")["by"] == "system:timeout"
    assert Request.objects.get(run_id=run.pk).state == "expired"


def test_an_escalation_is_no_decision(carrier: Carrier, turn_time: Turn) -> None:
    gate = {
        **GATE,
        "timeout": "1h",
        "on_timeout": "escalate",
        "escalate": [{"after": "30m", "to": ["role:support_lead"]}],
    }
    run = ran(carrier, {"g": gate})
    turn_time(3601)
    engine.beat_once()
    assert steps_of(run)["g"] == "waiting"
    assert "gate.decided" not in events(run)
    press(run)
    assert state(run) == "completed"


def test_a_gate_within_a_loop_that_is_rejected_may_end_the_run(carrier: Carrier) -> None:
    gate = {**GATE, "on_reject": "end", "for_each": {"items": "${{ input.xs }}"}}
    run = ran(carrier, {"g": gate, "z": say(1, needs=["g"])}, {"xs": [1, 2]})
    press(run, "reject")
    assert (state(run), Run.objects.get(pk=run.pk).outcome) == ("completed", "rejected")
    assert steps_of(run)["g"] == "cancelled"
    assert Request.objects.filter(run_id=run.pk, state="open").count() == 0


def test_a_run_over_its_wall_time_ends_whatever_it_does(carrier: Carrier, turn_time: Turn) -> None:
    run = ran(carrier, {"a": GO, "b": say(1)}, timeout="2h")
    turn_time(7201)
    engine.beat_once()
    assert (state(run), error(run)["class"]) == ("timed_out", "timeout")
    assert steps_of(run) == {"a": "cancelled", "b": "completed"}
    assert n_timers(run) == 0


def test_waiting_is_no_working_time(carrier: Carrier, turn_time: Turn) -> None:
    run = ran(carrier, {"a": GO, "b": say(1, needs=["a"]), "c": {**GO, "needs": ["b"]}})
    for key in "12":
        turn_time(24 * 3600)
        engine.beat_once()
        assert state(run) == "waiting"
        send(run, key=key)
        carrier.run_all()
    assert state(run) == "completed"
    assert Run.objects.get(pk=run.pk).worked < timedelta(minutes=1)


def test_a_run_over_its_working_time_is_timed_out(carrier: Carrier, turn_time: Turn) -> None:
    """One hour, unless the document says otherwise: a step that hangs, never claimed."""
    run_id = started({"a": say(1)})
    carrier.messages.clear()
    turn_time(3500)
    engine.beat_once()
    carrier.messages.clear()
    assert state(run_id) in ("pending", "running")
    turn_time(101)
    engine.beat_once()
    assert state(run_id) == "timed_out"


def test_a_paused_run_uses_no_working_time_but_wall_time(carrier: Carrier, turn_time: Turn) -> None:
    working = started({"a": say(1)})
    wall = started({"a": say(2)}, timeout="2h")
    for run_id in (working, wall):
        engine.pause_run(run_id, actor="me", reason="")
    turn_time(7201)
    engine.beat_once()
    assert (state(working), state(wall)) == ("paused", "timed_out")


def test_a_running_body_loses_its_fence_when_the_run_times_out(
    carrier: Carrier, turn_time: Turn
) -> None:
    run_id = started({"a": hook("late")}, timeout="1h")

    def late(ctx: Any) -> None:
        turn_time(3601)
        engine.beat_once()

    probes.hooks["late"] = late
    carrier.run_all()
    assert state(run_id) == "timed_out"
    assert steps_of(Run.objects.get(pk=run_id)) == {"a": "cancelled"}


def test_no_signal_is_lost_between_looking_and_parking(carrier: Carrier, settings: Any) -> None:
    """The signal comes while the wait's body runs."""
    executors = {**settings.ORCHESTRATOR["EXECUTORS"], "wait": "tests.engine.probes.NosyWait"}
    settings.ORCHESTRATOR = {**settings.ORCHESTRATOR, "EXECUTORS": executors}
    run = Run.objects.get(pk=started({"a": GO}))
    applied = []
    probes.hooks["wait"] = lambda _: applied.append(send(run, 3).applied)
    carrier.run_all()
    assert applied == [False]
    assert output(run) == {"a": 3}


def test_a_blueprint_is_the_same_row_for_the_same_document(carrier: Carrier) -> None:
    blueprint = registered({"a": say(1)})
    assert registered({"a": say(1)}).pk == blueprint.pk
    run_id = start(blueprint)
    carrier.run_all()
    assert state(run_id) == "completed"
