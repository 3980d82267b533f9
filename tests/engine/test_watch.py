"""The watch: what nothing will move is told within a minute, and nothing else ever is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from django.core.management import call_command
from django.db import connection

from orchestrator import engine
from orchestrator.authoring import Permanent
from orchestrator.models import Alert, DeadLetter, Duty, Run
from orchestrator.ops import orphan_rules, watch
from orchestrator.ops.watch import look_around, look_in_turn
from orchestrator.tasks import tick
from tests.engine import probes
from tests.engine.carrier import Carrier
from tests.engine.runs import (
    count,
    fail,
    hook,
    kill,
    lose,
    ran,
    registered,
    say,
    settle_down,
    start,
    started,
    state,
    step,
)

Turn = Callable[[float], None]

WAIT = {"type": "wait", "signal": "go"}
SLEEP = {"type": "wait", "for": "1h"}


@pytest.fixture
def broken(carrier: Carrier) -> Iterator[Callable[..., None]]:
    """Break rows by SQL; the runs are removed before the engine's own check looks."""

    def breaks(sql: str, *params: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(sql, params)
            assert cursor.rowcount > 0, "nothing was broken"

    yield breaks
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE orchestrator_run, orchestrator_outbox CASCADE")


def told(kind: str = "orphan") -> set[tuple[UUID | None, str, str]]:
    """The open alerts of a kind: run, step, rule."""
    found = Alert.objects.filter(kind=kind, closed_at__isnull=True)
    return {(a.run_id, a.detail.get("step", ""), a.detail.get("rule", "")) for a in found}


def closed() -> int:
    return Alert.objects.filter(closed_at__isnull=False).count()


# -- orphans ---------------------------------------------------------------------------------------


def test_a_running_step_without_a_lease_is_told_and_closed_when_cured(
    carrier: Carrier, broken: Any
) -> None:
    probes.hooks["die"] = probes.die
    run_id = started({"a": hook("die")})
    kill(carrier)
    look_around()
    assert told() == set()
    broken("UPDATE orchestrator_step SET lease_until = NULL WHERE run_id = %s", run_id)
    look_around()
    assert told() == {(run_id, "a", "no_lease")}
    broken("UPDATE orchestrator_step SET lease_until = now() WHERE run_id = %s", run_id)
    look_around()
    assert (told(), closed()) == (set(), 1)


def test_a_lease_that_no_sweep_took_up_is_told_and_closed_when_it_does(
    carrier: Carrier, broken: Any
) -> None:
    probes.hooks["die"] = probes.die
    run_id = started({"a": hook("die")})
    kill(carrier)
    lose(run_id, "a")
    look_around()
    assert told() == set()  # the sweep has its time
    broken(
        "UPDATE orchestrator_step SET lease_until = now() - interval '1 minute' WHERE run_id = %s",
        run_id,
    )
    look_around()
    assert told() == {(run_id, "a", "lease_over")}
    probes.hooks["die"] = lambda _: "alive"
    engine.beat_once()
    carrier.run_all()
    look_around()
    assert (state(run_id), told(), closed()) == ("completed", set(), 1)


def test_a_retry_without_its_timer_is_told(carrier: Carrier, broken: Any) -> None:
    run = ran(carrier, {"a": fail("other")})
    look_around()
    assert told() == set()
    broken("DELETE FROM orchestrator_timer WHERE run_id = %s", run.pk)
    look_around()
    assert told() == {(run.pk, "a", "no_timer")}
    engine.cancel_run(run.pk, actor="me", reason="nothing will move it")
    look_around()
    assert (told(), closed()) == (set(), 1)


@pytest.mark.parametrize(
    ("wait", "sql"),
    [
        (WAIT, "UPDATE orchestrator_step SET waiting_key = '' WHERE run_id = %s"),
        (SLEEP, "DELETE FROM orchestrator_timer WHERE run_id = %s"),
        (WAIT, "UPDATE orchestrator_step SET waiting_for = 'review' WHERE run_id = %s"),
        (WAIT, "UPDATE orchestrator_step SET waiting_for = '' WHERE run_id = %s"),
    ],
    ids=["signal", "timer", "review", "nothing"],
)
def test_a_wait_that_nothing_will_end_is_told(
    carrier: Carrier, broken: Any, wait: dict[str, Any], sql: str
) -> None:
    sound, run = ran(carrier, {"a": wait}), ran(carrier, {"a": wait})
    broken(sql, run.pk)
    look_around()
    assert told() == {(run.pk, "a", "no_wait")}
    assert state(sound) == "waiting"


def test_a_wait_for_a_child_that_is_gone_is_told(carrier: Carrier, broken: Any) -> None:
    child = registered({"a": WAIT}, name="child")
    steps = {"sub": {"type": "sub_workflow", "workflow": "child", "input": {}}}
    run = ran(carrier, steps, pins={"child": child.digest})
    look_around()
    assert told() == set()
    broken("UPDATE orchestrator_run SET parent_step = NULL WHERE parent_id = %s", run.pk)
    look_around()
    assert told() == {(run.pk, "sub", "no_wait")}


def test_ready_work_that_nobody_was_sent_for_is_told_until_a_sweep_sends(
    carrier: Carrier, broken: Any
) -> None:
    run_id = started({"a": say(1)})
    carrier.messages.clear()
    look_around()
    assert told() == set()
    broken(
        "UPDATE orchestrator_step SET ready_at = now() - interval '40 seconds',"
        " dispatched_at = NULL, n_dispatched = 0 WHERE run_id = %s",
        run_id,
    )
    look_around()
    assert told() == {(run_id, "a", "not_dispatched")}
    engine.beat_once()
    look_around()
    assert (told(), closed()) == (set(), 1)
    carrier.run_all()


def test_ready_work_that_waits_for_a_place_is_no_orphan(
    carrier: Carrier, broken: Any, turn_time: Turn
) -> None:
    probes.hooks["die"] = probes.die
    steps = {"a": hook("die"), "b": say(1), "c": say(2)}
    run_id = started(steps, max_parallel=1)
    kill(carrier)
    turn_time(3600)
    look_around()
    assert told() == set()
    assert {step(run_id, key).state for key in "bc"} == {"ready"}


def test_ready_work_of_a_paused_run_is_no_orphan(carrier: Carrier, turn_time: Turn) -> None:
    run_id = started({"a": say(1)})
    carrier.messages.clear()
    engine.pause_run(run_id, actor="me", reason="lunch")
    turn_time(3600)
    look_around()
    assert told() == told("stuck") == set()


def test_held_work_is_no_orphan(carrier: Carrier, turn_time: Turn) -> None:
    run_id = started({"a": say(1)})
    carrier.messages.clear()
    engine.hold("global", "", reason="inventory", actor="me")
    for _ in range(4):
        turn_time(120)
        engine.beat_once()
        carrier.run_all()
        look_around()
        assert told() == told("stuck") == set()
    assert (state(run_id), step(run_id, "a").waiting_for) == ("waiting", "service")
    assert "inventory" in engine.picture(Run.objects.get(pk=run_id)).steps[0].sentence
    engine.release_hold("global", "", reason="done", actor="me")
    settle_down(carrier, turn_time)


def test_a_timer_that_does_not_fire_is_told(carrier: Carrier, turn_time: Turn) -> None:
    run = ran(carrier, {"a": SLEEP})
    turn_time(3600 + 60)
    look_around()
    assert told() == {(run.pk, "a", "timer_late")}
    engine.beat_once()
    look_around()
    assert (state(run), told(), closed()) == ("completed", set(), 1)


def test_a_run_that_nobody_ends_in_time_is_told(carrier: Carrier, turn_time: Turn) -> None:
    run = ran(carrier, {"a": WAIT}, timeout="10m")
    turn_time(660)
    look_around()
    assert told() == {(run.pk, "", "run_late")}
    engine.beat_once()
    look_around()
    assert (state(run), told(), closed()) == ("timed_out", set(), 1)


def test_a_run_of_which_nothing_moves_is_an_orphan_at_once_and_stuck_after_five_minutes(
    carrier: Carrier, broken: Any, turn_time: Turn
) -> None:
    run_id = started({"a": say(1), "b": say(2, needs=["a"])})
    carrier.messages.clear()
    broken("UPDATE orchestrator_step SET state = 'blocked' WHERE run_id = %s", run_id)
    look_around()
    assert told() == {(run_id, "", "nothing_moves")}
    assert told("stuck") == set()
    turn_time(310)
    look_around()
    assert told("stuck") == {(run_id, "", "stuck")}
    engine.cancel_run(run_id, actor="me", reason="it stands")
    look_around()
    assert (told(), told("stuck"), closed()) == (set(), set(), 2)


def test_a_run_whose_places_leaked_away_is_stuck(
    carrier: Carrier, broken: Any, turn_time: Turn
) -> None:
    run_id = started({"a": say(1), "b": say(2)}, max_parallel=1)
    carrier.messages.clear()
    broken("UPDATE orchestrator_run SET compact = set_byte(compact, 7, 9) WHERE id = %s", run_id)
    broken(
        "UPDATE orchestrator_step SET dispatched_at = NULL, n_dispatched = 0 WHERE run_id = %s",
        run_id,
    )
    turn_time(310)
    engine.beat_once()
    look_around()
    assert (told("stuck"), told()) == ({(run_id, "", "stuck")}, set())


# -- what a person has to deal with ----------------------------------------------------------------


def test_dead_letters_are_told_together_until_the_last_is_answered(carrier: Carrier) -> None:
    one, two = ran(carrier, {"a": fail()}), ran(carrier, {"a": fail()})
    look_around()
    alert = Alert.objects.get(kind="dead_letter")
    assert alert.detail["open"] == 2
    assert alert.detail["newest_runs"] == [str(two.pk), str(one.pk)]
    for run in (one, two):
        engine.repair_run(
            run.pk,
            action="retry_step",
            step="a",
            reason="again",
            actor="me",
            role="",
            token=str(run.pk),
        )
    look_around()
    assert closed() == 1
    carrier.run_all()
    look_around()
    assert Alert.objects.filter(kind="dead_letter", closed_at__isnull=True).count() == 1


def test_a_dead_letter_of_last_week_is_no_alert_any_more(carrier: Carrier, turn_time: Turn) -> None:
    ran(carrier, {"a": fail()})
    look_around()
    turn_time(8 * 86_400)
    look_around()
    assert (told("dead_letter"), closed()) == (set(), 1)


def test_a_dead_letter_of_a_run_that_is_wholly_undone_asks_nothing_of_anybody(
    carrier: Carrier,
) -> None:
    """It cannot be retried, and there is nothing left to do."""
    undo = {"tool": "probe.count", "input": {"name": "undo"}}
    run = ran(carrier, {"a": say(1, compensate=undo), "b": fail(needs=["a"])})
    assert (Run.objects.get(pk=run.pk).compensation, DeadLetter.objects.count()) == ("full", 1)
    look_around()
    assert told("dead_letter") == set()


def test_what_cannot_be_undone_is_told(carrier: Carrier) -> None:
    undo = {"compensate": {"tool": "probe.fail", "input": {"kind": "permanent"}}}
    run = ran(carrier, {"a": say(1, **undo), "b": fail(needs=["a"])})
    final = ran(carrier, {"a": say(1, irreversible=True), "b": fail(needs=["a"])})
    look_around()
    found = {a.run_id: a.detail["reason"] for a in Alert.objects.filter(kind="compensation")}
    assert found == {run.pk: "compensation", final.pk: "irreversible"}


def test_what_is_undone_at_last_is_told_no_more(carrier: Carrier) -> None:
    probes.hooks["undo"] = lambda _: (_ for _ in ()).throw(Permanent("not now"))
    undo = {"compensate": {"tool": "probe.hook", "input": {"name": "undo"}}}
    run = ran(carrier, {"a": say(1, **undo), "b": fail(needs=["a"])})
    look_around()
    assert len(told("compensation")) == 1
    probes.hooks["undo"] = lambda _: "undone"
    engine.repair_run(
        run.pk,
        action="compensate_step",
        step="a",
        reason="it can be undone now",
        actor="me",
        role="",
        token="t",
    )
    carrier.run_all()
    look_around()
    assert (step(run, "a").state, told("compensation")) == ("compensated", set())


def test_an_effect_in_doubt_is_told_until_a_person_has_settled_it(carrier: Carrier) -> None:
    probes.hooks["pay"] = lambda _: (_ for _ in ()).throw(LookupError("no answer"))
    run = ran(carrier, {"a": hook("pay", effect={"key": "pay:1"})})
    assert run.waiting_for == "review"
    look_around()
    assert [a.detail["effect_key"] for a in Alert.objects.filter(kind="in_doubt")] == ["pay:1"]
    assert told() == set()
    engine.repair_run(
        run.pk,
        action="settle_effect",
        step="a",
        reason="the bank says so",
        actor="me",
        role="",
        token="t",
        details={"effect_key": "pay:1", "outcome": "applied", "external_ref": "R-1"},
    )
    look_around()
    assert (state(run), closed()) == ("completed", 1)


# -- no false alarms -------------------------------------------------------------------------------


def mixed() -> list[UUID]:
    """Runs of every kind of step, some of which fail, wait, retry, loop and are undone."""
    child = registered({"x": say(1), "y": {"type": "wait", "for": "30s", "needs": ["x"]}}, name="c")
    undo = {"compensate": {"tool": "probe.count", "input": {"name": "undo"}}}
    flows: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"a": say(1), "b": say(2, needs=["a"]), "c": say(3, needs=["b"])}, {}),
        ({"a": say(1), **{f"b{n}": say(n, needs=["a"]) for n in range(6)}}, {"max_parallel": 2}),
        ({"a": fail("other", times=2), "b": say(1, needs=["a"])}, {}),
        ({"a": count("n", "${{ item }}", for_each={"items": [1, 2, 3], "max_parallel": 2})}, {}),
        ({"a": {**SLEEP, "for": "20s", "for_each": {"items": [1, 2]}}}, {}),
        ({"a": say(1, **undo), "b": say(2, needs=["a"], **undo), "c": fail(needs=["b"])}, {}),
        (
            {"a": {"type": "sub_workflow", "workflow": "c", "input": {}}},
            {"pins": {"c": child.digest}},
        ),
        ({"a": WAIT, "b": say(1, needs=["a"])}, {"timeout": "10m"}),
        ({"a": say(1, effect={"key": "e:${{ run.id }}"}), "b": fail("limited", times=1)}, {}),
        (
            {
                "a": say(
                    1,
                    repeat={"until": "false", "max": 3, "delay": "5s", "on_exhausted": "continue"},
                )
            },
            {},
        ),
        ({"a": fail(on_error="pause")}, {}),
        ({"a": fail(fallback="b"), "b": say(1)}, {}),
    ]
    return [start(registered(steps, name=f"m{n}", **more)) for n, (steps, more) in enumerate(flows)]


def test_a_normal_run_of_mixed_workflows_raises_no_false_alarm(
    carrier: Carrier, turn_time: Turn, fusion: bool
) -> None:
    run_ids = mixed()
    carrier.shuffle = True
    for _ in range(60):
        for _ in range(20):
            if carrier.messages:
                carrier.run_one()
                look_around()
        engine.beat_once()
        look_around()
        assert told() == told("stuck") == set()
        if not carrier.messages:
            turn_time(15)
            engine.beat_once()
            look_around()
    states = set(Run.objects.filter(pk__in=run_ids).values_list("state", flat=True))
    assert states == {"completed", "failed", "paused", "timed_out"}
    assert not Alert.objects.exclude(kind="dead_letter").exists()


# -- turns, slices, paths --------------------------------------------------------------------------


def test_a_look_walks_over_many_rows_in_slices(
    carrier: Carrier, broken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "SLICE", 2)
    runs = [ran(carrier, {"a": WAIT, "b": SLEEP}) for _ in range(7)]
    for run in (runs[0], runs[3], runs[6]):
        broken("DELETE FROM orchestrator_timer WHERE run_id = %s", run.pk)
    look_around()
    assert {run_id for run_id, _, _ in told()} == {runs[0].pk, runs[3].pk, runs[6].pk}


def test_a_look_that_has_no_time_goes_on_where_the_last_one_stopped(
    carrier: Carrier, broken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [ran(carrier, {"a": SLEEP}) for _ in range(6)]
    broken("DELETE FROM orchestrator_timer WHERE run_id = %s", runs[5].pk)
    monkeypatch.setattr(watch, "SLICE", 2)
    ticks = iter(range(1000))
    monkeypatch.setattr(watch.time, "monotonic", lambda: next(ticks) * 0.6)  # one slice a look
    places: dict[str, Any] = {}
    seen = []
    for _ in range(3):
        places = look_around(places).places
        seen.append(len(told()))
    assert seen == [0, 0, 1]


def test_one_of_many_processes_looks_at_a_time(transactional_db: None, turn_time: Turn) -> None:
    together = threading.Barrier(6)
    looks: list[Any] = []

    def ask() -> None:
        together.wait()
        looks.append(look_in_turn())
        connection.close()

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(look is not None for look in looks) == 1
    assert look_in_turn() is None
    turn_time(15)
    assert look_in_turn() is not None


def test_whoever_was_away_gives_the_sweeps_a_round_first(carrier: Carrier, turn_time: Turn) -> None:
    look_in_turn()
    run = ran(carrier, {"a": {**SLEEP, "for": "5m"}})
    turn_time(600)
    look_in_turn()
    assert told() == set()
    turn_time(15)
    look_in_turn()
    assert told() == {(run.pk, "a", "timer_late")}
    engine.beat_once()


def test_the_pulse_and_beat_both_look(carrier: Carrier, broken: Any, turn_time: Turn) -> None:
    run = ran(carrier, {"a": SLEEP})
    look_in_turn()
    broken("DELETE FROM orchestrator_timer WHERE run_id = %s", run.pk)
    turn_time(20)
    tick()
    assert told() == {(run.pk, "a", "no_wait")}
    turn_time(20)
    call_command("pulse", "--once")
    assert Alert.objects.get(kind="orphan").count == 2
    assert Duty.objects.get(name="watch").notes["skipped"] == []


def test_an_alert_of_a_run_that_ended_well_meanwhile_closes(
    carrier: Carrier, broken: Any, turn_time: Turn
) -> None:
    run = ran(carrier, {"a": {**SLEEP, "for": "1m"}})
    turn_time(100)
    look_around()
    assert len(told()) == 1
    settle_down(carrier, turn_time)
    look_around()
    assert (state(run), told()) == ("completed", set())


def test_a_rule_that_takes_too_long_is_left_to_the_next_look(
    carrier: Carrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = orphan_rules.Rule(
        "slow", "SELECT r.id, r.tenant, '', '' FROM orchestrator_run r, pg_sleep(5) {only}"
    )
    monkeypatch.setattr(watch, "ORPHANS", (slow, *orphan_rules.ORPHANS))
    monkeypatch.setattr(watch, "STATEMENT_MS", 50)
    ran(carrier, {"a": WAIT})
    assert look_around().skipped == ["slow"]
