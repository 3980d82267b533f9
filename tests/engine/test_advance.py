"""The plain way on and the plain end, by lean statements, are the general one in every row."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import IntegrityError, OperationalError, connection

from orchestrator import engine
from orchestrator.clock import new_id
from orchestrator.core.endings import Tally
from orchestrator.models import Event, Run, Step, direct, rows
from orchestrator.models.advance import Advance, Finish, PassOn, advance
from orchestrator.models.moves import MovedOn, StaleFence
from orchestrator.models.statements import execute
from tests.engine import probes
from tests.engine.carrier import Carrier
from tests.engine.guarded import running
from tests.engine.runs import events, payload, ran, say, started, state, step

pytestmark = pytest.mark.django_db(transaction=True)

WORKED_OUT_ANEW = {"id", "run", "run_id", "worker", "correlation_id"}
CHAIN = {
    "a": say({"n": 1, "text": 'quoted "é" \\ \n'}, service='odd "name" \\ of é'),
    "b": say("${{ steps.a.output.n }}", needs=["a"], service="other"),
    "c": say(None, needs=[{"step": "b", "when": "steps.b.output == 1"}]),
    "d": say("${{ steps.a.output.text }}", needs=["c"]),
    "e": say(5, needs=["d"], queue="tool.other", service="other"),
    "f": say(6, needs=["e"]),
}


@pytest.fixture(autouse=True)
def _forget(one_by_one: None) -> None:
    """Every step by itself: what is claimed in company goes another way."""
    probes.forget()


def shape(row: Any) -> dict[str, Any]:
    """Every column, less what differs between any two runs; of instants, whether there is one."""
    found = {f.attname: getattr(row, f.attname) for f in row._meta.concrete_fields}
    for name in WORKED_OUT_ANEW & found.keys():
        del found[name]
    if found.get("fence", 0) > 1_000:
        found["fence"] = "of the clock"
    return {
        name: "an instant"
        if value is not None and name.endswith(("at", "_until", "since"))
        else value
        for name, value in found.items()
        if not isinstance(value, timedelta)
    }


def everything(run: Run) -> list[dict[str, Any]]:
    steps = Step.objects.filter(run=run).order_by("position")
    lines = Event.objects.filter(run_id=run.pk).order_by("seq")
    return [shape(row) for row in (Run.objects.get(pk=run.pk), *steps, *lines)]


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> list[Advance | PassOn | Finish]:
    """What the lean statements were asked to write."""
    seen: list[Advance | PassOn | Finish] = []

    def noted(move: Advance | PassOn | Finish) -> Any:
        seen.append(move)
        return advance(move)

    monkeypatch.setattr("orchestrator.engine.writing.advance", noted)
    return seen


def test_the_plain_way_on_writes_every_row_as_the_general_one_does(
    carrier: Carrier,
    moves: list[Advance | PassOn | Finish],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lean = ran(carrier, CHAIN)
    assert [(type(move), move.done) for move in moves] == [
        (Advance, "a"),
        (Advance, "b"),
        (Advance, "c"),
        (PassOn, "d"),
        (PassOn, "e"),
        (Finish, "f"),
    ]

    monkeypatch.setattr(direct, "is_free", lambda: False)
    general = ran(carrier, CHAIN)

    assert len(moves) == 6
    assert everything(lean) == everything(general)


def test_the_summary_is_the_same_from_memory_and_from_the_history(
    carrier: Carrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    remembered = ran(carrier, CHAIN)
    reads: list[UUID] = []
    read_tally = rows.read_tally

    def noted(run_id: UUID) -> Tally:
        reads.append(run_id)
        return read_tally(run_id)

    monkeypatch.setattr(rows, "read_tally", noted)
    paused = started(CHAIN)
    engine.pause_run(paused, actor="me", reason="so that its history is no newborn's")
    engine.resume_run(paused, actor="me", reason="")
    carrier.run_all()

    assert reads == [paused]
    assert payload(remembered, "run.completed") == payload(paused, "run.completed")


def test_what_needs_more_than_the_plain_way_goes_the_general_one(
    carrier: Carrier, moves: list[Advance | PassOn | Finish]
) -> None:
    steps = {
        "a": say(1),
        "b": say(2, needs=["a"], effect={"key": "one"}),
        "c": say(3, needs=["b"]),
        "d": say(4, needs=["a"]),
    }
    run = ran(carrier, steps)

    assert state(run) == "completed"
    assert [move.done for move in moves] == ["d"]  # not two READY at once, an intent, a receipt


LEAN = ("advance", "pass_on", "finish")


def asked(run_id: UUID, kind: str) -> Advance | PassOn | Finish:
    """What a worker would write who holds the run and its running step ``a``."""
    found = rows.read_work(run_id, "a", "")
    assert found is not None
    run, row = found
    settled: dict[str, Any] = {
        "run_id": run.id,
        "version": run.version,
        "compact": run.snapshot.pack(),
        "step_id": str(row.id),
        "fence": row.fence,
        "done": "a",
        "output": "late",
        "owed": None,
    }
    if kind == "finish":
        ended: dict[str, Any] = {"run_output": 1, "outcome": "", "compensation": ""}
        return Finish(**settled, **ended, warnings=[], ended={})
    following: dict[str, Any] = {
        "next_id": new_id(),
        "key": "z",
        "position": 1,
        "type": "tool",
        "queue": "tool",
        "gates": None,
    }
    if kind == "pass_on":
        return PassOn(**settled, **following, plain_timeout_s=None)
    lease = timedelta(seconds=15)
    return Advance(**settled, **following, timeout_s=30.0, input={}, worker="me", lease=lease)


def refused(run_id: UUID, move: Advance | PassOn | Finish, error: type[Exception]) -> None:
    before = (events(run_id), step(run_id, "a").state, Run.objects.get(pk=run_id).version)
    with pytest.raises(error):
        advance(move)
    assert before == (
        events(run_id),
        step(run_id, "a").state,
        Run.objects.get(pk=run_id).version,
    )
    assert not Step.objects.filter(run_id=run_id, key="z").exists()


@pytest.mark.parametrize("kind", LEAN)
def test_a_lean_write_from_an_older_version_of_the_run_changes_nothing(
    carrier: Carrier, kind: str
) -> None:
    run_id = running(carrier)
    move = asked(run_id, kind)
    refused(run_id, replace(move, version=move.version - 1), MovedOn)


@pytest.mark.parametrize("kind", LEAN)
def test_a_lean_write_with_an_older_fence_changes_nothing(carrier: Carrier, kind: str) -> None:
    run_id = running(carrier)
    move = asked(run_id, kind)
    refused(run_id, replace(move, fence=move.fence - 1), StaleFence)


@pytest.mark.parametrize("kind", LEAN)
def test_a_lean_write_of_a_step_that_does_not_run_changes_nothing(
    carrier: Carrier, kind: str
) -> None:
    run_id = running(carrier)
    move = asked(run_id, kind)
    put = "UPDATE orchestrator_step SET state = %s WHERE id = %s"
    execute(put, ["retrying", move.step_id])
    refused(run_id, move, StaleFence)
    execute(put, ["running", move.step_id])


@pytest.mark.parametrize("kind", LEAN)
@pytest.mark.parametrize("over", ["paused", "completed", "compensating"])
def test_a_lean_write_of_a_run_that_does_not_run_changes_nothing(
    carrier: Carrier, over: str, kind: str
) -> None:
    run_id = running(carrier)
    move = asked(run_id, kind)
    put = "UPDATE orchestrator_run SET state = %s WHERE id = %s"
    execute(put, [over, run_id])
    refused(run_id, move, MovedOn)
    execute(put, ["running", run_id])


@pytest.mark.parametrize("table", ["run", "step"])
def test_the_database_knows_no_other_states(carrier: Carrier, table: str) -> None:
    run_id = running(carrier)
    where = "id" if table == "run" else "run_id"
    with pytest.raises(IntegrityError, match=f"orchestrator_{table}_state"):
        execute(f"UPDATE orchestrator_{table} SET state = 'done' WHERE {where} = %s", [run_id])


@pytest.mark.parametrize("kind", LEAN)
def test_a_connection_that_breaks_is_an_operational_error(carrier: Carrier, kind: str) -> None:
    run_id = running(carrier)
    move = asked(run_id, kind)
    connection.ensure_connection()
    connection.connection.pgconn.finish()
    with pytest.raises(OperationalError):
        advance(move)
    connection.close()
    assert step(run_id, "a").state == "running"
