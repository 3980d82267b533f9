"""Replay: the record is decided anew, and whoever changes either is found out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any
from uuid import UUID

import orjson
import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from orchestrator import engine
from orchestrator.core.replay_log import Difference
from orchestrator.engine.replaying import replay_run, replay_runs
from orchestrator.models import Alert, Event, ReplayCheck, ReplayDay, Run, Step
from orchestrator.ops import replay_sample
from tests.engine.carrier import Carrier
from tests.engine.runs import NO_RETRY, fail, ran, say, settle_down, started, step

BRANCHING = {
    "first": say({"big": True}),
    "second": say(2, needs=[{"step": "first", "when": "output.big"}]),
    "third": say(3, needs=[{"step": "first", "when": "!output.big"}]),
    "last": say(4, needs=["second", "third"], when="steps.first.output.big"),
}


@pytest.fixture
def damaged(carrier: Carrier) -> Carrier:
    """Rows are changed by hand here: what a replay finds is what the test is about."""
    carrier.damaged = True
    return carrier


def difference(run: Run, *, deep: bool = False) -> Difference:
    (found,) = replay_runs([run.pk], deep=deep)
    assert found.difference is not None, "the replay came out as recorded"
    return found.difference


def identical(run: Run | UUID) -> bool:
    found = replay_run(run.pk if isinstance(run, Run) else run)
    assert found is not None
    return found.identical


@contextmanager
def retention() -> Iterator[Any]:
    """The one way to change what has happened."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL orchestrator.retention = 'on'")
        yield cursor


def rewrite(run: Run, seq: int, **columns: Any) -> None:
    sets = ", ".join(f"{name} = %s" for name in columns)
    values = [orjson.dumps(v).decode() if isinstance(v, dict) else v for v in columns.values()]
    with retention() as cursor:
        cursor.execute(
            f"UPDATE orchestrator_event SET {sets} WHERE run_id = %s AND seq = %s",
            [*values, run.pk, seq],
        )
        assert cursor.rowcount == 1


def line(run: Run, kind: str, key: str = "") -> Event:
    found = Event.objects.filter(run_id=run.pk, type=kind)
    event = (found.filter(step=key) if key else found).order_by("seq").last()
    assert event is not None
    return event


# -- what is found ---------------------------------------------------------------------------------


def test_an_untouched_history_comes_out_as_recorded(carrier: Carrier) -> None:
    run = ran(carrier, BRANCHING)
    assert identical(run)
    assert [found.identical for found in replay_runs([run.pk], deep=True)] == [True]


def test_a_condition_recorded_otherwise_shows_in_what_followed(damaged: Carrier) -> None:
    run = ran(damaged, BRANCHING)
    event = line(run, "step.completed", "first")
    asked = dict.fromkeys(event.payload["asked"], True)
    rewrite(run, event.seq, payload={**event.payload, "asked": asked})
    found = difference(run)
    assert (found.sequence, found.expected.split(" ")[0]) == (event.seq + 1, "step.ready")


def test_a_condition_that_was_not_asked_is_missed(damaged: Carrier) -> None:
    run = ran(damaged, BRANCHING)
    rewrite(run, line(run, "step.completed", "first").seq, payload={})
    assert "the condition on first of step" in difference(run).expected


def test_a_step_that_started_before_it_was_ready_is_found(damaged: Carrier) -> None:
    run = ran(damaged, {"a": say(1), "b": say(2, needs=["a"])})
    rewrite(run, line(run, "step.started", "a").seq, step="b")
    found = difference(run)
    assert "b is blocked" in found.expected
    assert found.recorded.startswith("step.started b")


@pytest.mark.parametrize(
    ("kind", "key", "change", "words"),
    [
        ("step.completed", "a", {"type": "step.failed"}, "known class"),
        ("step.ready", "b", {"step": "c"}, "step.ready b"),
        ("step.started", "b", {"payload": {"attempt": 7}}, '"attempt":1'),
        ("run.completed", "", {"type": "run.failed"}, "run.completed"),
        ("step.completed", "b", {"type": "something.else"}, "may go on with"),
        ("run.started", "", {"payload": {"decisions": 1}}, "none"),
    ],
)
def test_a_line_that_does_not_follow_is_shown_beside_the_one_that_would(
    damaged: Carrier, kind: str, key: str, change: dict[str, Any], words: str
) -> None:
    run = ran(damaged, {"a": say(1), "b": say(2, needs=["a"]), "c": say(3, needs=["b"])})
    if words == "none":  # what the start's line says besides is a fact: nothing follows from it
        rewrite(run, 1, **change)
        assert identical(run)
        return
    rewrite(run, line(run, kind, key).seq, **change)
    found = difference(run)
    assert words in found.expected, found


def test_a_line_that_is_missing_is_found(damaged: Carrier) -> None:
    run = ran(damaged, {"a": say(1), "b": say(2, needs=["a"])})
    gone = line(run, "step.ready", "b").seq
    with retention() as cursor:
        cursor.execute(
            "DELETE FROM orchestrator_event WHERE run_id = %s AND seq = %s", [run.pk, gone]
        )
    assert difference(run).sequence == gone + 1


def test_a_history_without_its_end_is_found(damaged: Carrier) -> None:
    run = ran(damaged, {"a": say(1)})
    with retention() as cursor:
        cursor.execute(
            "DELETE FROM orchestrator_event WHERE run_id = %s AND type = 'run.completed'", [run.pk]
        )
    assert difference(run).recorded == "the end of the history"


def test_a_retry_recorded_with_another_delay_is_found(
    damaged: Carrier, turn_time: Callable[[float], None]
) -> None:
    run_id = started({"a": fail("transient", times=1)})
    settle_down(damaged, turn_time)
    run = Run.objects.get(pk=run_id)
    event = line(run, "step.retry_scheduled")
    assert identical(run)
    rewrite(run, event.seq, payload={**event.payload, "delay_s": 0.5})
    assert "step.retry_scheduled" in difference(run).expected


def test_a_timer_that_fired_early_is_found(
    damaged: Carrier, turn_time: Callable[[float], None]
) -> None:
    run_id = started({"a": {"type": "wait", "for": "1h"}})
    settle_down(damaged, turn_time, by=3601)
    run = Run.objects.get(pk=run_id)
    assert identical(run)
    fired = line(run, "timer.fired")
    at = line(run, "timer.set").at
    with retention() as cursor:
        cursor.execute(
            "UPDATE orchestrator_event SET at = %s WHERE run_id = %s AND seq >= %s",
            [at, run.pk, fired.seq],
        )
    assert "no timer of a for another 3600 s" in difference(run).expected


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("run", "outcome = 'rejected'"),
        ("run", "state = 'failed'"),
        ("run", "compact = set_byte(compact, 9, 6)"),
        ("step", "state = 'failed'"),
        ("step", "attempt = 4"),
    ],
)
def test_a_row_that_the_history_does_not_lead_to_is_found(
    carrier: Carrier, table: str, change: str
) -> None:
    run = ran(carrier, {"a": say(1)})
    owner = "id" if table == "run" else "run_id"
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"UPDATE orchestrator_{table} SET {change} WHERE {owner} = %s", [run.pk])
        found = difference(run)
        transaction.set_rollback(True)
    assert found.sequence == 0


def test_a_deep_replay_asks_the_stored_outputs_too(damaged: Carrier) -> None:
    run = ran(damaged, BRANCHING)
    Step.objects.filter(run=run, key="first").update(output={"big": False})
    assert identical(run)
    assert "over the stored outputs" in difference(run, deep=True).expected


def test_a_history_of_before_replay_is_left_alone(damaged: Carrier) -> None:
    run = ran(damaged, {"a": say(1)})
    rewrite(run, 1, payload={"workflow": "flow", "version": 1})
    found = replay_run(run.pk)
    assert found is not None
    assert (found.difference, found.unread) == (None, "its history was recorded before replay was")


def test_a_replay_of_no_run_is_none(carrier: Carrier) -> None:
    assert replay_run(UUID(int=7)) is None


# -- the command -----------------------------------------------------------------------------------


def command(*arguments: str) -> tuple[int, str, str]:
    out, err = StringIO(), StringIO()
    try:
        call_command("replay", *arguments, stdout=out, stderr=err)
    except CommandError as error:
        return error.returncode, out.getvalue(), err.getvalue() + str(error)
    return 0, out.getvalue(), err.getvalue()


def test_the_command_replays_all_and_keeps_the_result(carrier: Carrier) -> None:
    one, two = ran(carrier, {"a": say(1)}), ran(carrier, {"a": fail()})
    status, said, _ = command("--all")
    assert status == 0
    assert "2 of 2 runs identical" in said
    assert ReplayCheck.objects.filter(identical=True).count() == 2
    assert {one.pk, two.pk} == set(ReplayCheck.objects.values_list("run_id", flat=True))
    assert ReplayDay.objects.get().n_checked == 2
    shown = engine.picture(one).replay
    assert shown is not None
    assert shown.identical is True


@pytest.mark.parametrize(
    "arguments", [("--sample", "5"), ("--since", "1h"), ("--since", "2020-01-01"), ("--deep",), ()]
)
def test_the_command_takes_some(carrier: Carrier, arguments: tuple[str, ...]) -> None:
    ran(carrier, {"a": say(1)})
    status, said, _ = command(*arguments)
    assert (status, said.split(":")[0]) == (0, "1 of 1 runs identical")


def test_the_command_names_the_first_difference(damaged: Carrier) -> None:
    run = ran(damaged, {"a": say(1), "b": say(2, needs=["a"])})
    place = line(run, "step.ready", "b").seq
    rewrite(run, place, type="step.skipped")
    status, said, told = command(str(run.pk))
    assert status == 1
    assert "0 of 1 runs identical" in said
    assert f"differs in event {place}" in told
    assert "expected  step.ready b" in told
    assert "recorded  step.skipped b" in told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((str(UUID(int=7)),), "there is no run"),
        (("--since", "soon"), "neither a duration"),
        (("--all", "--sample", "3"), "one of them"),
        (("--sample", "0"), "from 1"),
    ],
)
def test_the_command_says_what_is_wrong_with_its_arguments(
    db: None, arguments: tuple[str, ...], words: str
) -> None:
    status, _, told = command(*arguments)
    assert status == 2
    assert words in told


# -- on a beat -------------------------------------------------------------------------------------


def in_turn(turn_time: Callable[[float], None]) -> replay_sample.Sampled:
    turn_time(replay_sample.EVERY_S + 1)
    sampled = replay_sample.replay_in_turn()
    assert sampled is not None
    return sampled


def test_a_beat_replays_what_ended_and_no_run_twice(
    carrier: Carrier, turn_time: Callable[[float], None]
) -> None:
    ran(carrier, {"a": say(1)})
    started({"w": {"type": "wait", "for": "1h"}})
    carrier.run_all()
    assert in_turn(turn_time).n_checked == 1
    assert replay_sample.replay_in_turn() is None, "not our turn"
    ran(carrier, {"a": say(1)})
    assert in_turn(turn_time).n_checked == 1
    assert in_turn(turn_time).n_checked == 0


def test_the_alert_opens_below_the_gate_and_closes_again(
    damaged: Carrier, turn_time: Callable[[float], None]
) -> None:
    run = ran(damaged, {"a": fail(**NO_RETRY)})
    event = line(run, "step.failed")
    rewrite(run, event.seq, type="step.timed_out")
    assert in_turn(turn_time).n_differing == 1
    alert = Alert.objects.get(kind="replay", closed_at=None)
    assert (alert.run_id, alert.severity) == (run.pk, "critical")
    assert "1 of 1 runs" in alert.title
    rewrite(run, event.seq, type="step.failed")
    assert command(str(run.pk))[0] == 0
    in_turn(turn_time)
    assert not Alert.objects.filter(kind="replay", closed_at=None).exists()


def test_a_run_that_went_on_is_replayed_anew(
    carrier: Carrier, turn_time: Callable[[float], None]
) -> None:
    run = ran(carrier, {"a": fail(times=1, **NO_RETRY)})
    assert in_turn(turn_time).n_checked == 1
    engine.repair_run(
        run.pk, action="retry_step", step="a", reason="mended", actor="user:x", token="t"
    )
    carrier.run_all()
    assert step(run, "a").state == "completed"
    assert in_turn(turn_time).n_checked == 1
