"""Waits that end plainly, written by the lean statement: like the general one in every row, guarded
like it, and many of them in one pipeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from django.db import OperationalError, connection

from orchestrator import engine
from orchestrator.engine import timers, waking
from orchestrator.models import Event, Run, Timer, rows
from orchestrator.models.moves import MovedOn, StaleFence
from orchestrator.models.wake import Wake, wake, wake_each
from tests.engine import probes
from tests.engine.carrier import Carrier
from tests.engine.runs import events, registered, say, start, state, step
from tests.engine.test_advance import everything

pytestmark = pytest.mark.django_db(transaction=True)

TurnTime = Callable[[float], None]
NAP = {"nap": {"type": "wait", "for": "10s"}, "after": say(1, needs=["nap"])}
SIGNAL = {
    "ear": {"type": "wait", "signal": "go", "timeout": "10s", "on_timeout": "continue"},
    "then": say("${{ steps.ear.output }}", needs=["ear"]),
    "other": say(2, needs=[{"step": "ear", "when": "steps.ear.output == null"}]),
}
AGAIN = {
    "once": {
        "type": "tool",
        "tool": "probe.fail",
        "input": {"times": 1, "kind": "transient"},
        "retry": {"max_retries": 2, "base_delay": "5s"},
    },
    "after": say(3, needs=["once"]),
}


@pytest.fixture(autouse=True)
def _forget() -> None:
    probes.forget()


@pytest.fixture
def pipelined(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many waits each pipeline ended."""
    seen: list[int] = []

    def counted(moves: list[Wake]) -> list[bool]:
        done = wake_each(moves)
        seen.append(sum(done))
        return done

    monkeypatch.setattr(waking, "wake_each", counted)
    return seen


def parked(carrier: Carrier, steps: dict[str, Any]) -> Run:
    run = Run.objects.get(pk=start(registered(steps)))
    carrier.run_all()
    assert Timer.objects.filter(run=run).count() == 1
    return run


def through(carrier: Carrier, turn_time: TurnTime, steps: dict[str, Any]) -> Run:
    run = parked(carrier, steps)
    turn_time(60)
    assert engine.beat_once().done["timers"] == 1
    carrier.run_all()
    assert state(run) == "completed"
    return run


@pytest.mark.parametrize("steps", [NAP, SIGNAL, AGAIN], ids=["nap", "signal", "retry"])
def test_a_wait_that_ends_plainly_writes_every_row_as_the_general_way_does(
    carrier: Carrier,
    turn_time: TurnTime,
    pipelined: list[int],
    monkeypatch: pytest.MonkeyPatch,
    steps: dict[str, Any],
) -> None:
    monkeypatch.setattr("orchestrator.engine.settle.jitter", lambda: 0.5)
    lean = through(carrier, turn_time, steps)
    assert pipelined == [1]

    probes.forget()
    monkeypatch.setattr("orchestrator.engine.waking.plain_waking", lambda *_: None)
    monkeypatch.setattr("orchestrator.engine.writing.plain_waking", lambda *_: None)
    general = through(carrier, turn_time, steps)

    assert pipelined == [1]
    assert everything(lean) == everything(general)


def test_many_timers_fire_in_one_round_and_each_once(
    carrier: Carrier, turn_time: TurnTime, pipelined: list[int]
) -> None:
    runs = [parked(carrier, NAP) for _ in range(12)]
    turn_time(60)
    assert timers.fire_due(limit=5) == 12
    assert pipelined == [5, 5, 2]
    assert Timer.objects.count() == 0
    assert timers.fire_due() == 0
    carrier.run_all()
    assert {state(run) for run in runs} == {"completed"}
    for run in runs:
        assert Event.objects.filter(run_id=run.pk, type="timer.fired").count() == 1


def test_a_run_that_moved_since_it_was_read_is_left_to_the_lock(
    carrier: Carrier, turn_time: TurnTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick, moved = parked(carrier, NAP), parked(carrier, NAP)
    turn_time(60)
    reading = rows.read_due

    def read_and_meddle(ids: list[int]) -> Any:
        found = reading(ids)
        engine.pause_run(moved.pk, reason="look", actor="user:ann")
        return found

    monkeypatch.setattr(rows, "read_due", read_and_meddle)
    timers.fire_due()
    carrier.run_all()
    assert state(quick) == "completed"
    assert state(moved) == "paused"
    monkeypatch.setattr(rows, "read_due", reading)
    engine.resume_run(moved.pk, reason="seen", actor="user:ann")
    carrier.run_all()
    assert state(moved) == "completed"


def test_what_is_not_plain_goes_the_general_way(
    carrier: Carrier, turn_time: TurnTime, pipelined: list[int]
) -> None:
    steps = {"nap": {"type": "wait", "for": "10s"}}  # the wait's end is the run's
    run = parked(carrier, steps)
    turn_time(60)
    assert timers.fire_due() == 1
    assert pipelined == []
    assert state(run) == "completed"


def test_two_sweeps_at_once_fire_each_timer_once(
    carrier: Carrier, turn_time: TurnTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [parked(carrier, NAP) for _ in range(4)]
    turn_time(60)
    once = [True]

    def meddled(moves: list[Wake]) -> list[bool]:
        if once.pop() if once else False:
            assert timers.fire_due() == 4  # another sweep, between our read and our write
        return wake_each(moves)

    monkeypatch.setattr(waking, "wake_each", meddled)
    assert timers.fire_due() == 0
    carrier.run_all()
    assert [state(run) for run in runs] == ["completed"] * 4
    for run in runs:
        assert Event.objects.filter(run_id=run.pk, type="timer.fired").count() == 1


def asked(run_id: UUID) -> Wake:
    """A wake as a sweep would write it that has read the run and its waiting step ``nap``."""
    found = rows.read_work(run_id, "nap", "")
    assert found is not None
    run, row = found
    return Wake(
        run_id=run.id,
        version=run.version,
        compact=run.snapshot.pack(),
        step_id=row.id,
        fence=row.fence,
        state="waiting",
        output={},
        queued=None,
        ready=[],
        events=[("timer.fired", "nap", {}, "")],
    )


@pytest.mark.parametrize(
    ("change", "error"),
    [({"version": 0}, MovedOn), ({"fence": 999}, StaleFence), ({"state": "retrying"}, StaleFence)],
    ids=["version", "fence", "state"],
)
def test_a_wake_that_is_out_of_date_changes_nothing(
    carrier: Carrier, change: dict[str, Any], error: type[Exception]
) -> None:
    run = parked(carrier, NAP)
    late, before = replace(asked(run.pk), **change), events(run.pk)
    with pytest.raises(error):
        wake(late)
    assert wake_each([late]) == [False]
    assert events(run.pk) == before
    assert step(run.pk, "nap").state == "waiting"
    assert Timer.objects.filter(run=run).count() == 1


def test_a_paused_run_is_not_woken(carrier: Carrier) -> None:
    run = parked(carrier, NAP)
    engine.pause_run(run.pk, reason="look", actor="user:ann")
    with pytest.raises(MovedOn):
        wake(asked(run.pk))


def test_one_refusal_in_a_pipeline_keeps_no_other_from_being_written(carrier: Carrier) -> None:
    first, second, third = (parked(carrier, NAP) for _ in range(3))
    moves = [asked(run.pk) for run in (first, second, third)]
    moves[1].fence += 1
    carrier.damaged = True  # their compact states still say that they wait
    assert wake_each(moves) == [True, False, True]
    assert [step(run.pk, "nap").state for run in (first, second, third)] == [
        "completed",
        "waiting",
        "completed",
    ]
    assert Run.objects.filter(pk=second.pk).exists()  # the connection is whole again


def test_a_lazy_commit_is_lazy_for_itself_alone(carrier: Carrier) -> None:
    run = parked(carrier, NAP)
    carrier.damaged = True
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit = 'local'")
        assert wake_each([asked(run.pk)]) == [True]
        cursor.execute("SELECT current_setting('synchronous_commit')")
        assert cursor.fetchone()[0] == "local"
        cursor.execute("RESET synchronous_commit")


def test_a_pipeline_whose_connection_breaks_is_an_operational_error(carrier: Carrier) -> None:
    move = asked(parked(carrier, NAP).pk)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        pid = cursor.fetchone()[0]
    wake_each([replace(move, fence=0)])
    _end(pid)
    with pytest.raises(OperationalError):
        wake_each([move])
    connection.close()
    assert step(move.run_id, "nap").state == "waiting"


def _end(pid: int) -> None:
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    finally:
        other.close()
