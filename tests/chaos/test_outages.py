"""One server away at a time: what callers see meanwhile, and how soon all is well again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from tests.chaos import checks, shapes
from tests.chaos.place import Place
from tests.chaos.processes import World, world
from tests.tasks.conftest import CHORD

pytestmark = [pytest.mark.stack, pytest.mark.timeout(180)]

SHAPES = (shapes.CHAIN, CHORD, shapes.LANES)


@pytest.fixture(scope="module")
def place(tmp_path_factory: Any, django_db_blocker: Any) -> Iterator[Place]:
    """A world whose workers run through all tests of the module."""
    folder = tmp_path_factory.mktemp("outages")
    with django_db_blocker.unblock(), world(folder, lease_s=15) as mine:
        shapes.publish_shapes(*SHAPES)
        mine.fleet.start_ready()
        yield Place(mine)


@pytest.fixture
def whole(place: Place) -> Iterator[World]:
    """The servers run again afterwards, also when a test failed."""
    yield place.world
    place.world.kill_broker()
    place.world.start_broker()


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_a_start_is_accepted_at_once_while_the_broker_is_away(
    place: Place, whole: World, shape: shapes.Shape
) -> None:
    whole.kill_broker()
    began = time.monotonic()
    run = place.start(shape)
    took = time.monotonic() - began
    whole.start_broker()

    place.await_end([run], seconds=20)
    place.assert_right(shape, run)
    assert took < 3


def test_the_checker_sees_a_body_that_runs_again_after_its_completion(
    place: Place, whole: World
) -> None:
    run = place.start(CHORD)
    place.await_end([run])
    place.fleet.until(lambda: not checks.breaches(), 10)  # other tests' runs are over, too

    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO chaos_ledger SELECT gen_random_uuid(), run, step, scope, attempt, fence,"
            " pid, clock_timestamp() FROM chaos_ledger WHERE run = %s AND step = 'join'"
            " RETURNING call",
            [run],
        )
        (call,) = cursor.fetchone()
        found = checks.breaches()
        cursor.execute("DELETE FROM chaos_ledger WHERE call = %s", [call])

    assert [line.partition(" (")[0] for line in found] == [
        "a body began after its step was committed as completed",
        "one attempt ran twice",
    ]


def test_no_worker_ends_when_the_broker_is_killed_under_running_bodies(
    place: Place, whole: World
) -> None:
    before = {process.name for process in place.fleet.alive()}
    for _ in range(2):
        runs = {place.start(shape, sleep_ms=300): shape for shape in SHAPES}
        place.fleet.until(lambda runs=runs: all(place.bodies(run) for run in runs), 20)
        whole.kill_broker()
        place.fleet.listen(1)  # as long as it is away
        whole.start_broker()

        place.await_end(list(runs), seconds=40)
        for run, shape in runs.items():
            place.assert_right(shape, run)
    assert {process.name for process in place.fleet.alive()} == before


def test_workers_consume_again_after_a_restart_of_the_broker(place: Place, whole: World) -> None:
    for _ in range(2):
        whole.kill_broker()
        whole.start_broker()

        runs = {place.start(shape): shape for shape in SHAPES}
        place.await_end(list(runs), seconds=20)
        for run, shape in runs.items():
            place.assert_right(shape, run)


def test_a_restart_of_postgresql_is_a_pause_and_no_worker_ends(place: Place, whole: World) -> None:
    before = {process.name for process in place.fleet.alive()}
    whole.stop_postgres()
    whole.start_postgres()
    connection.close()  # this process's own, which was cut

    runs = {place.start(shape): shape for shape in SHAPES}
    place.await_end(list(runs), seconds=20)
    for run, shape in runs.items():
        place.assert_right(shape, run)
    assert {process.name for process in place.fleet.alive()} == before
