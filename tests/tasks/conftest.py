"""Servers and processes of their own for a module, with the shapes of the chaos tests published."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection

from orchestrator.models import Run, Step
from tests.chaos import shapes
from tests.chaos.processes import World, tail, world
from tests.chaos.shapes import Input, Shape
from tests.chaos.storm import CALLER, OVER
from workflows_app.triggering import start

CHORD = shapes.fan("chord", 4, ("tool", "agent"), head=False)
SHORT = shapes.chain("short", 4, ("tool", "agent"))
STRETCH = shapes.chain("stretch", 4, ("tool",))
SHAPES = (SHORT, STRETCH, shapes.FAN, CHORD, shapes.LANES)
GIVEN: Input = {"value": 7, "sleep_ms": 0, "items": [1, 2, 3, 4, 5, 6, 7]}


class Place:
    """A world in which runs are started and waited for."""

    def __init__(self, mine: World) -> None:
        self.world = mine
        self.fleet = mine.fleet

    def start(self, shape: Shape, **changes: Any) -> UUID:
        """Start a run as a caller does."""
        body = {"input": GIVEN | changes}
        return start(CALLER, shape.name, body, key=str(uuid4())).run_id

    def await_end(self, runs: Sequence[UUID], seconds: float = 40) -> None:
        """Return when all have ended."""
        self.fleet.until(lambda: not self.open(runs), seconds, lambda: self._where(runs))

    def open(self, runs: Sequence[UUID]) -> list[Run]:
        """Those that have not ended."""
        return list(Run.objects.filter(pk__in=runs).exclude(state__in=OVER))

    def _where(self, runs: Sequence[UUID]) -> str:
        where = [
            f"{run.workflow} {run.state}: "
            + ", ".join(f"{s.key}{s.scope} {s.state}" for s in Step.objects.filter(run=run))
            for run in self.open(runs)
        ]
        return "\n".join([*where, tail(self.fleet.logs)])

    def bodies(self, run: UUID) -> dict[str, int]:
        """How often each step's body ran."""
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT step || scope, count(*) FROM chaos_ledger WHERE run = %s GROUP BY 1", [run]
            )
            return dict(cursor.fetchall())

    def assert_right(self, shape: Shape, run: UUID) -> None:
        """It ended as it should, and every body ran once."""
        found = Run.objects.get(pk=run)
        assert (found.state, found.output) == (shape.state, shape.expected(GIVEN)), shape.name
        bodies = self.bodies(run)
        assert set(bodies.values()) == {1}, f"{shape.name}: {bodies}"


@pytest.fixture(scope="module")
def place(tmp_path_factory: Any, django_db_blocker: Any) -> Iterator[Place]:
    """A world for the module; no worker runs in it yet."""
    folder = tmp_path_factory.mktemp("carriers")
    with django_db_blocker.unblock(), world(folder, lease_s=15) as mine:
        shapes.publish_shapes(*SHAPES, shapes.CHAIN, shapes.ONE_QUEUE, shapes.PAUSE)
        yield Place(mine)


@pytest.fixture
def quiet(place: Place) -> Iterator[Place]:
    """The same with no worker and an empty broker, before and after."""
    yield place
    place.fleet.stop()
    place.world.flush_broker()


FuseEverywhere = Callable[[bool], None]


@pytest.fixture
def fused(settings: Any) -> FuseEverywhere:
    """Switch fusion on or off in this process, as its processes are started with."""

    def switch(value: bool) -> None:
        settings.ORCHESTRATOR = settings.ORCHESTRATOR | {"FUSE": value}

    return switch
