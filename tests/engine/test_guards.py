"""Each guard by itself: what it alone stands in the way of, with the other guards out of the way.

``tests/drill/guards.py`` takes each guard away and sees to it that its test fails.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import transaction

from orchestrator import engine
from orchestrator.core.admission import n_queued
from orchestrator.core.errors import StateConflict
from orchestrator.engine import outbox, recovery, steps, timers
from orchestrator.models import (
    Attempt,
    Run,
    Step,
    moves,
    outbox_rows,
    rows,
    step_moves,
    sweeps,
)
from orchestrator.models.moves import MovedOn, StaleFence, Write
from tests.engine import probes
from tests.engine.carrier import Carrier
from tests.engine.guarded import Never, completion, running, work_on
from tests.engine.runs import (
    count,
    events,
    fail,
    hook,
    kill,
    lose,
    ran,
    say,
    started,
    state,
    step,
    steps_of,
)
from tests.engine.test_concurrency import all_at_once
from tests.engine.test_repair import repair
from tests.engine.test_waits import GATE, GO, send

Turn = Callable[[float], None]


def test_a_write_of_an_older_version_of_the_run_changes_nothing(carrier: Carrier) -> None:
    run_id = running(carrier)
    found, row = rows.read_work(run_id, "a", "")
    engine.pause_run(run_id, actor="me", reason="look first")
    with pytest.raises(MovedOn):
        moves.apply_decision(completion(found, row))
    assert (state(run_id), step(run_id, "a").state) == ("paused", "running")


def test_a_write_with_an_older_fence_changes_nothing(carrier: Carrier) -> None:
    run_id = running(carrier)
    found, row = rows.read_work(run_id, "a", "")
    with pytest.raises(StaleFence):
        moves.apply_decision(completion(found, replace(row, fence=row.fence - 1)))
    assert step(run_id, "a").state == "running"
    assert Run.objects.get(pk=run_id).version == found.version


def test_a_run_that_is_over_takes_no_write_even_of_its_last_version(carrier: Carrier) -> None:
    run = ran(carrier, {"a": say(1)})
    found = rows.read_work(run.pk, "a", "")[0]
    before = events(run)
    write = Write(
        run_id=run.pk,
        version=found.version,
        compact=found.snapshot.pack(),
        state="running",
        events=[("run.resumed", "", {}, "")],
    )
    with pytest.raises(MovedOn):
        moves.apply_decision(write)
    assert (state(run), events(run)) == ("completed", before)


def test_nobody_reopens_a_run_that_completed(carrier: Carrier) -> None:
    run = ran(carrier, {"a": say(1), "b": {**GO, "needs": ["a"]}})
    send(run, 1)
    before = (state(run), events(run))
    assert before[0] == "completed"
    for act in (engine.pause_run, engine.resume_run, engine.cancel_run):
        with pytest.raises(StateConflict):
            act(run.pk, actor="me", reason="")
    with pytest.raises(StateConflict):
        repair(run, "retry_step", "a")
    with pytest.raises(StateConflict):
        send(run, 2, key="2")
    assert work_on(run.pk, "a") == work_on(run.pk, "b") == 0
    assert (state(run), events(run)) == before


def test_a_message_that_nobody_sent_takes_no_place_beyond_max_parallel(carrier: Carrier) -> None:
    probes.hooks["die"] = probes.die
    run_id = started({"a": hook("die"), "b": count("b")}, max_parallel=1)
    kill(carrier)  # a runs, and b is READY without a place
    assert work_on(run_id, "b") == 0
    assert (step(run_id, "b").state, probes.calls["b"]) == ("ready", 0)


def test_what_is_on_its_way_holds_a_place_of_the_run(carrier: Carrier, one_by_one: None) -> None:
    run_id = started({f"s{n}": say(n) for n in range(6)}, max_parallel=2)
    for n in range(4):
        work_on(run_id, f"s{n}", Never())
        snapshot = rows.read_work(run_id, "s0", "")[0].snapshot
        assert snapshot.running + n_queued(snapshot) == 2


def test_a_step_is_marked_as_sent_whoever_sends_for_it(carrier: Carrier, one_by_one: None) -> None:
    """Else the sweep takes its message for lost at once."""
    run_id = started({f"s{n}": say(n) for n in range(6)}, max_parallel=2)
    for n in range(4):
        work_on(run_id, f"s{n}", Never())
        sent = Step.objects.filter(run_id=run_id, state="ready", dispatched_at__isnull=False)
        assert sent.count() == 2


# -- leases ----------------------------------------------------------------------------------------


def test_who_lost_its_lease_renews_nothing(carrier: Carrier) -> None:
    run_id = running(carrier)
    row = step(run_id, "a")
    lease = steps.engine_settings().lease * 100
    assert step_moves.renew_leases([(row.pk, row.fence - 1)], lease) == set()
    assert step(run_id, "a").lease_until == row.lease_until
    assert step_moves.renew_leases([(row.pk, row.fence)], lease) == {row.pk}


def test_a_process_that_stood_still_past_its_lease_begins_no_body(
    carrier: Carrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGSTOP between claim and body: by SIGCONT another worker has done the step."""
    run_id = started({"a": count("a")})
    claim = steps.claim
    pauses = [3600.0]

    def stopped(order: engine.Order) -> Any:
        work = claim(order)
        if work is not None and pauses:
            work.asked_at -= pauses.pop()
            lose(run_id, "a")
            engine.beat_once()
            carrier.run_all()
            assert state(run_id) == "completed"
        return work

    monkeypatch.setattr(steps, "claim", stopped)
    carrier.run_all()
    assert probes.calls["a"] == 1


def test_a_sweep_that_looked_earlier_ends_no_living_attempt(
    carrier: Carrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = running(carrier)
    lose(run_id, "a")
    found = sweeps.expired_leases(10)
    engine.beat_once()
    kill(carrier)  # the second worker has it, and its lease lives
    monkeypatch.setattr(sweeps, "expired_leases", lambda limit: found)
    assert recovery.expire_leases() == 0
    row = step(run_id, "a")
    assert (row.state, row.attempt, row.n_lost) == ("running", 2, 1)


def test_a_sweep_that_looked_earlier_fires_no_timer_again(
    carrier: Carrier, turn_time: Turn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that waits again by a timer of the same kind keeps its new one."""
    run = ran(carrier, {"a": fail("other", times=2, retry={"base_delay": "1m", "max_delay": "1h"})})
    turn_time(121)
    found = sweeps.due_timers(10)
    engine.beat_once()
    carrier.run_all()
    assert step(run, "a").state == "retrying"
    monkeypatch.setattr(sweeps, "due_timers", lambda limit: found)
    assert timers.fire_due() == 0
    assert step(run, "a").state == "retrying"


# -- between runs ----------------------------------------------------------------------------------


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found: list[Any] = []
    monkeypatch.setitem(outbox._internal, "probe", lambda run_id, payload: found.append(payload))
    return found


def test_a_message_of_the_outbox_is_handled_once_though_many_found_it(
    carrier: Carrier, heard: list[Any]
) -> None:
    number = outbox_rows.post("probe", uuid4(), {"n": 1})
    handled = all_at_once([lambda: outbox.handle([number])] * 8)
    assert (sum(handled), heard) == (1, [{"n": 1}])


def test_a_message_whose_handler_died_is_still_there(
    carrier: Carrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(run_id: UUID, payload: Any) -> None:
        raise probes.Killed

    monkeypatch.setitem(outbox._internal, "probe", dies)
    number = outbox_rows.post("probe", uuid4(), {})
    with pytest.raises(probes.Killed):
        outbox.handle([number])
    assert outbox_rows.due(10) == [number]


def test_the_engine_takes_one_decision_for_a_gate_whoever_brings_it(carrier: Carrier) -> None:
    run = ran(carrier, {"g": GATE, "z": count("z", needs=["g"])})
    attempt = step(run, "g").attempt

    def bring(choice: str, attempt: int = attempt) -> bool:
        with transaction.atomic():
            words = {"decision": choice, "by": "user:ann", "notes": "", "data": None}
            return engine.deliver_decision(
                run.pk, key="g", scope="", attempt=attempt, payload=words, actor="user:ann"
            )

    assert bring("approved", attempt + 1) is False
    assert [bring("approved"), bring("rejected"), bring("approved")] == [True, False, False]
    carrier.run_all()
    assert events(run).count("gate.decided") == 1
    assert probes.calls["z"] == 1
    assert steps_of(run) == {"g": "completed", "z": "completed"}


def test_a_late_result_of_a_cancelled_item_changes_nothing(
    carrier: Carrier, turn_time: Turn
) -> None:
    """The run's time is over while an item's body runs: its fence has grown."""
    run_id = started({"a": hook("late", "${{ item }}", for_each={"items": [1]})}, timeout="1h")

    def late(ctx: Any) -> None:
        turn_time(3601)
        engine.beat_once()

    probes.hooks["late"] = late
    carrier.run_all()
    assert state(run_id) == "timed_out"
    assert Step.objects.get(run_id=run_id, scope="[0]").state == "cancelled"
    assert Attempt.objects.filter(step__run=run_id, outcome="late").count() == 1
