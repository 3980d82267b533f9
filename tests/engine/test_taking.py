"""A message that takes a step whose place is kept: one statement, and no decision of its own."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from orchestrator import engine
from orchestrator.core.admission import Lane
from orchestrator.engine import steps
from orchestrator.models import Run, Step, moves, rows, step_moves
from tests.engine.carrier import Carrier
from tests.engine.runs import count, ran, say, started, state

pytestmark = pytest.mark.django_db(transaction=True)

BLOCKED = (
    "SELECT count(*) FROM pg_locks l JOIN pg_stat_get_activity(NULL) a ON a.pid = l.pid"
    " JOIN pg_database d ON d.oid = a.datid WHERE NOT l.granted AND d.datname = current_database()"
)


def waits_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(BLOCKED)
        return cursor.fetchone()[0] > 0


def test_the_input_of_a_taken_step_is_stored_with_its_answer(carrier: Carrier) -> None:
    run = ran(carrier, {"a": say("${{ input.n }}")}, {"n": 7})

    row = Step.objects.get(run=run, key="a")
    assert row.plain_timeout_s is not None
    assert row.input == {"value": 7}


def test_a_step_with_an_effect_is_left_to_planning(carrier: Carrier) -> None:
    run_id = started({"a": count("pay", {}, effect={"key": "pay:1"})})

    assert Step.objects.get(run=run_id, key="a").plain_timeout_s is None
    carrier.run_all()
    assert state(run_id) == "completed"


def test_nothing_is_taken_while_the_run_is_paused(carrier: Carrier) -> None:
    run_id = started({"a": count("a")})
    engine.pause_run(run_id, actor="me", reason="look first")

    assert steps.claim(engine.Order(run_id=run_id, key="a")) is None
    assert Step.objects.get(run=run_id, key="a").attempt == 0


def test_who_waited_for_the_runs_lock_goes_on_from_what_there_is_then(carrier: Carrier) -> None:
    """The statement reads the run, waits for its lock, and takes a step of a newer run."""
    run_id = started({"a": count("a"), "b": say(1, needs=["a"])})
    taken: list[Any] = []

    def take() -> None:
        try:
            taken.append(steps.claim(engine.Order(run_id=run_id, key="a")))
        finally:
            connection.close()

    with transaction.atomic():
        rows.lock_run(run_id)
        moves.append_event(run_id, "signal.received", {"name": "x"}, "me")
        other = threading.Thread(target=take)
        other.start()
        while not waits_for_a_lock():
            assert other.is_alive()
    other.join(timeout=30)

    (work,) = taken
    run, row = Run.objects.get(pk=run_id), Step.objects.get(run=run_id, key="a")
    assert (work.run.version, work.row.fence, work.row.attempt) == (run.version, row.fence, 1)
    assert run.state == "running"


def test_a_claim_that_a_crash_of_the_server_forgot_is_not_given_out_again(carrier: Carrier) -> None:
    run_id = started({"a": say(1)})
    order = engine.Order(run_id=run_id, key="a")
    tables = {Run: Run.objects.get(pk=run_id), Step: Step.objects.get(run=run_id)}
    forgotten = steps.claim(order)
    assert forgotten is not None
    answer = steps.perform(forgotten, max_items=10)
    for table, was in tables.items():  # what the server finds on its disk
        fields = {f.attname: getattr(was, f.attname) for f in was._meta.concrete_fields}
        table.objects.filter(pk=was.pk).update(**fields)
    with connection.cursor() as cursor:
        cursor.execute("SET orchestrator.retention = on")
        cursor.execute("DELETE FROM orchestrator_event WHERE type = 'step.started'")
        cursor.execute("RESET orchestrator.retention")

    again = steps.claim(order)
    assert again is not None
    assert steps.settle(forgotten, answer, Lane(queue="tool")) is None
    held = [(forgotten.row.id, forgotten.row.fence)]
    assert step_moves.renew_leases(held, timedelta(hours=1)) == set()

    row = Step.objects.get(run=run_id)
    assert (row.state, row.fence, row.output) == ("running", again.row.fence, None)
    assert [attempt.outcome for attempt in row.attempts.all()] == ["late"]
    steps.settle(again, answer, Lane(queue="tool"))
    assert state(run_id) == "completed"


def test_only_the_claim_of_a_message_may_be_forgotten_by_a_crash(carrier: Carrier) -> None:
    """What takes nothing leaves the commit as it is."""
    flushed: list[str] = []
    with connection.cursor() as cursor:

        def ask(statement: str, params: list[Any]) -> str:
            with transaction.atomic():
                cursor.execute("SET LOCAL synchronous_commit = on")
                cursor.execute(statement, params)
                cursor.execute("SHOW synchronous_commit")
                (answer,) = cursor.fetchone()
            return str(answer)

        run_id = started({"a": say(1)})
        take = "SELECT taken_at FROM orchestrator_take(%s, 'a', '', 'me', interval '15 s')"
        flushed.append(ask(take, [run_id]))
        flushed.append(ask(take, [run_id]))

    assert flushed == ["off", "on"]  # taken, and then nothing was left to take
