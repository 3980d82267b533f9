"""READY work is looked at a page at a time: nothing is left out, however much there is."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest
from django.db import connection

from orchestrator import engine
from orchestrator.engine import recovery
from orchestrator.models import ready_pages
from orchestrator.models.statements import execute
from tests.engine import probes
from tests.engine.carrier import Carrier
from tests.engine.runs import count, started, state

pytestmark = pytest.mark.django_db(transaction=True)

TurnTime = Callable[[float], None]


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    probes.forget()
    monkeypatch.setattr(ready_pages, "PAGE", 4)


def lost(carrier: Carrier, n: int) -> list[UUID]:
    runs = [started({"a": count("a")}) for _ in range(n)]
    carrier.messages.clear()
    return runs


def test_every_lost_message_is_sent_again_within_a_lap(
    carrier: Carrier, turn_time: TurnTime
) -> None:
    runs = lost(carrier, 11)
    turn_time(3)
    rounds = []
    for _ in range(4):
        rounds.append(recovery.redispatch_stale())
        carrier.run_all()
    assert sum(rounds) == 11
    assert max(rounds) <= 4
    assert {state(run) for run in runs} == {"completed"}


def test_ready_work_of_paused_runs_hides_nothing_behind_it(
    carrier: Carrier, turn_time: TurnTime
) -> None:
    for run in lost(carrier, 9):
        engine.pause_run(run, actor="user:ann", reason="look")
    wanted = lost(carrier, 1)[0]
    turn_time(3)
    assert sum(recovery.redispatch_stale() for _ in range(4)) == 1
    carrier.run_all()
    assert state(wanted) == "completed"


def test_one_page_sees_all_of_it_each_time(carrier: Carrier, turn_time: TurnTime) -> None:
    lost(carrier, 3)
    turn_time(3)
    walk = ready_pages.Walk()
    for _ in range(3):
        assert len(walk.stale("tool", after_s=2, is_empty=True)) == 3
        assert walk.places["tool"] == ready_pages._START


def test_what_stands_before_a_shut_gate_is_parked_within_a_lap(
    carrier: Carrier, turn_time: TurnTime
) -> None:
    lost(carrier, 6)
    engine.hold("queue", "tool", reason="look", actor="user:ann")
    parked = [engine.beat_once().done["park"] for _ in range(3)]
    assert sum(parked) == 6
    assert max(parked) <= 4


def test_work_without_a_message_is_left_to_what_is_on_its_way(
    carrier: Carrier, turn_time: TurnTime
) -> None:
    started({f"w{n}": count(f"w{n}") for n in range(3)})
    execute("UPDATE orchestrator_step SET dispatched_at = NULL WHERE key <> 'w0'", [])
    turn_time(3)
    found = ready_pages.Walk().stale("tool", after_s=2, is_empty=True)
    assert [one.position for one in found] == [0]
    execute("UPDATE orchestrator_step SET dispatched_at = NULL", [])
    assert len(ready_pages.Walk().stale("tool", after_s=2, is_empty=True)) == 3
    carrier.run_all()


def test_a_page_costs_an_index_range_and_no_table(carrier: Carrier) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off")
        sql = ready_pages._STALE.replace("%s", "{}").format(
            "'tool'", "'-infinity'", f"'{ready_pages._START[1]}'", 2, 10, "true"
        )
        cursor.execute(f"EXPLAIN {sql}")
        plan = "\n".join(line for (line,) in cursor.fetchall())
        cursor.execute("RESET enable_seqscan")
    assert "orchestrator_step_ready" in plan
