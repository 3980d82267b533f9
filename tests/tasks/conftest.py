"""Servers and processes of their own for a module, with the shapes of the chaos tests published."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.chaos import shapes
from tests.chaos.place import Place
from tests.chaos.processes import world

CHORD = shapes.fan("chord", 4, ("tool", "agent"), head=False)
SHORT = shapes.chain("short", 4, ("tool", "agent"))
STRETCH = shapes.chain("stretch", 4, ("tool",))
SHAPES = (SHORT, STRETCH, shapes.FAN, CHORD, shapes.LANES)


@pytest.fixture(scope="module")
def place(tmp_path_factory: Any, django_db_blocker: Any) -> Iterator[Place]:
    """A world for the module; no worker runs in it yet."""
    folder = tmp_path_factory.mktemp("carriers")
    with django_db_blocker.unblock(), world(folder, lease_s=15, stale_s=0.5) as mine:
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
