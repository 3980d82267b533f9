"""Waiting for long costs nothing and survives everything: a day, then a week, then the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection

from orchestrator.models import Run, Step
from tests.chaos import checks, shapes
from tests.chaos.place import Place
from tests.chaos.processes import World, tail, world
from tests.conftest import CLOCK, TURN

pytestmark = [pytest.mark.stack, pytest.mark.timeout(240)]

DAY_S = 86_400.0


def long_run() -> shapes.Shape:
    """Ten steps: a day's wait after the third, a gate open for more than a week after the sixth."""
    work, value_of = shapes.work, shapes.value_of
    steps: dict[str, Any] = {
        "s1": work("input.value"),
        "s2": work(value_of("s1"), "s1", queue="agent"),
        "s3": work(value_of("s2"), "s2"),
        "day": {"type": "wait", "for": "24h", "needs": ["s3"]},
        "s5": work(value_of("s3"), "day"),
        "s6": work(value_of("s5"), "s5", queue="compensation"),
        "gate": {
            "type": "human_gate",
            "assignees": ["role:operator"],
            "timeout": "8d",
            "needs": ["s6"],
        },
        "s8": work(value_of("s6"), "gate"),
        "s9": work(value_of("s8"), "s8", queue="engine"),
        "s10": work(value_of("s9"), "s9"),
    }
    return shapes.Shape(
        name="long_run",
        steps=steps,
        expected=lambda given: {"s10": {"value": given["value"] + 8}},
        more={"timeout": "30d"},
    )


def turn(world: World, seconds: float) -> None:
    """Turn the clock of the database, as the fixture ``turn_time`` does."""
    with psycopg.connect(world.urls["DATABASE_URL"], autocommit=True) as database:
        database.execute(TURN, {"delta": f"{seconds} seconds"})


def restart_everything(world: World) -> None:
    """Workers and sweeps end, both servers are killed; all start again on the same data."""
    world.fleet.stop()
    world.kill_broker()
    world.stop_postgres()
    connection.close()
    world.start_postgres()
    world.start_broker()
    world.fleet.start_ready()


def await_waiting(place: Place, run: UUID, key: str, reason: str) -> None:
    """Return when the step waits for this reason, and the run with it."""
    place.fleet.until(
        lambda: Step.objects.filter(
            run=run, key=key, state="waiting", waiting_for=reason, run__state="waiting"
        ).exists(),
        why=lambda: tail(place.fleet.logs),
    )


def stays_waiting(run: UUID, key: str) -> None:
    """A whole round of sweeps at this very instant finds nothing to do."""
    call_command("pulse", once=True)
    assert Step.objects.get(run=run, key=key).state == "waiting"


def test_a_run_waits_a_day_and_a_week_at_a_gate_through_restarts_of_everything(
    tmp_path: Path, django_db_blocker: Any
) -> None:
    shape = long_run()
    with django_db_blocker.unblock(), world(tmp_path, lease_s=15) as mine:
        with psycopg.connect(mine.urls["DATABASE_URL"], autocommit=True) as database:
            database.execute(CLOCK)
        place = Place(mine)
        shapes.publish_shapes(shape)
        mine.fleet.start_ready()
        run = place.start(shape)

        await_waiting(place, run, "day", "timer")
        restart_everything(mine)
        turn(mine, DAY_S - 60)
        stays_waiting(run, "day")
        turn(mine, 61)
        await_waiting(place, run, "gate", "person")
        restart_everything(mine)
        turn(mine, 7 * DAY_S)
        stays_waiting(run, "gate")
        restart_everything(mine)
        call_command("approve", str(run))

        place.await_end([run])
        place.assert_right(shape, run)
        place.fleet.until(lambda: not checks.breaches(), 10)  # its end is told behind its end
        assert Run.objects.get(pk=run).worked.total_seconds() < DAY_S  # waits are no work
