"""Standing runs of the bench are like those that the engine makes, to the last byte of state."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import pytest
from django.db import connection

import bench.tools  # noqa: F401 - registers what the bench's documents call
from approvals_app.decisions import DecisionBody, decide
from approvals_app.models import Request
from approvals_app.policy import Person
from bench import documents, seeding
from bench.marks import FILE_VARIABLE
from orchestrator import engine
from orchestrator.models import Run, Timer
from orchestrator.ops.invariants import check_runs
from tests.engine.carrier import Carrier
from tests.engine.conftest import carrier

__all__ = ["carrier"]
COPIES = 3


@pytest.fixture(autouse=True)
def marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the bodies say when they ran."""
    monkeypatch.setenv(FILE_VARIABLE, str(tmp_path / "marks"))


OWN = {"id", "run_id", "step_id", "request_id", "correlation_id", "fire_at", "due_at", "xid"}


def parked(carrier: Carrier, shape: str) -> UUID:
    run_id = engine.start_run(
        tenant=documents.TENANT,
        blueprint=documents.register(shape),
        workflow=f"bench_{shape}",
        version=1,
        input={},
        actor="bench",
    )
    carrier.run_all()
    assert Run.objects.get(pk=run_id).state == "waiting"
    return run_id


def copies_of(run_id: UUID) -> list[UUID]:
    seeding.cast(seeding.take_mould(run_id), COPIES)
    ids = list(Run.objects.exclude(pk=run_id).values_list("pk", flat=True))
    assert len(ids) == COPIES
    return ids


def rows_of(run_id: UUID) -> dict[str, list[dict[str, Any]]]:
    """Every row in the database that names the run, or a request of its, by table."""
    requests = Request.objects.filter(run_id=run_id).values_list("pk", flat=True)
    named = [f"%{one}%" for one in (run_id, *requests)]
    found: dict[str, list[dict[str, Any]]] = {}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition"
            " AND relnamespace = 'public'::regnamespace"
        )
        for (table,) in cursor.fetchall():
            cursor.execute(f"SELECT to_jsonb(t) FROM {table} t WHERE t::text LIKE ANY(%s)", [named])
            rows = [orjson.loads(row) for (row,) in cursor.fetchall()]
            if rows:
                found[table] = sorted(rows, key=lambda row: (row.get("seq"), row.get("key")))
    return found


def without_ids(rows: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """The same with ids and due times as given or not given."""
    return {
        table: [
            {name: value is None if name in OWN else value for name, value in row.items()}
            for row in each
        ]
        for table, each in rows.items()
    }


@pytest.mark.parametrize("shape", ["gate", "timer"])
def test_a_copy_has_the_engines_columns_nulls_and_state_bytes(carrier: Carrier, shape: str) -> None:
    original = parked(carrier, shape)
    copies = copies_of(original)
    wanted = rows_of(original)
    assert {"orchestrator_run", "orchestrator_step", "orchestrator_timer"} < set(wanted)
    for copy in copies:
        assert without_ids(rows_of(copy)) == without_ids(wanted)
    ids = [
        (table, row["id"])
        for copy in copies
        for table, rows in rows_of(copy).items()
        for row in rows
    ]
    assert len(ids) == len(set(ids))


def test_copies_are_sound_and_can_be_decided(carrier: Carrier) -> None:
    copies = copies_of(parked(carrier, "gate"))
    assert not [v for finding in check_runs(copies) for v in finding.violations]
    who = Person(actor=documents.DECIDER, roles=frozenset())
    request = Request.objects.get(run_id=copies[1])
    decide(request.pk, DecisionBody(decision="approve"), tenant=documents.TENANT, person=who)
    carrier.run_all()
    assert Run.objects.get(pk=copies[1]).state == "completed"


def test_a_copied_timer_fires(carrier: Carrier, turn_time: Any) -> None:
    copies = copies_of(parked(carrier, "timer"))
    assert Timer.objects.count() == COPIES + 1
    turn_time(2 * 86_400)
    while engine.beat_once().done["timers"]:
        carrier.run_all()
    assert {run.state for run in Run.objects.filter(pk__in=copies)} == {"completed"}


def test_more_copies_make_no_id_twice(carrier: Carrier) -> None:
    mould = seeding.take_mould(parked(carrier, "timer"))
    seeding.cast(mould, COPIES)
    seeding.cast(mould, COPIES, first=COPIES)
    assert Run.objects.count() == 2 * COPIES + 1


def test_clearing_leaves_no_row_of_a_run(carrier: Carrier) -> None:
    run_id = parked(carrier, "gate")
    seeding.clear()
    assert rows_of(run_id) == {}
