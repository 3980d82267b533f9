"""When a lane gives its place to others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from uuid import uuid4

import pytest
from celery import current_app

from orchestrator.tasks.lanes import StretchControl
from orchestrator.tasks.slots import Slots
from orchestrator.tasks.steps import run_step

QUEUE = "compensation"


@pytest.fixture
def two_wait() -> Iterator[None]:
    """Two messages on the queue."""
    with current_app.connection_for_write() as broker:
        broker.default_channel.queue_purge(QUEUE)
        for _ in range(2):
            run_step.si(str(uuid4()), "some_step").apply_async(queue=QUEUE)
        yield
        broker.default_channel.queue_purge(QUEUE)


def none() -> int:
    return 0


def both() -> int:
    return 2


@pytest.mark.usefixtures("two_wait")
def test_a_lane_beyond_half_of_the_slots_gives_way_while_others_wait() -> None:
    slots, run = Slots(4), uuid4()
    with slots.held(run) as d, slots.held(run) as c, slots.held(run) as b, slots.held(run) as a:
        goes_on = [StretchControl(QUEUE, seat).takes_next(none) for seat in (a, b, c, d)]

    assert goes_on == [True, True, False, False]


@pytest.mark.usefixtures("two_wait")
def test_a_run_does_not_give_way_to_its_own_messages() -> None:
    slots, run = Slots(2), uuid4()
    with slots.held(run) as second, slots.held(run):
        assert StretchControl(QUEUE, second).takes_next(both)
        assert not StretchControl(QUEUE, second).takes_next(none)


@pytest.mark.usefixtures("two_wait")
def test_lanes_of_different_runs_are_each_within_their_half() -> None:
    slots = Slots(2)
    with slots.held(uuid4()) as one, slots.held(uuid4()) as other:
        assert StretchControl(QUEUE, one).takes_next(none)
        assert StretchControl(QUEUE, other).takes_next(none)


@pytest.mark.usefixtures("two_wait")
def test_the_only_lane_of_a_worker_with_one_slot_is_within_its_half() -> None:
    slots = Slots(1)
    with slots.held(uuid4()) as seat:
        assert StretchControl(QUEUE, seat).takes_next(none)


def test_a_slot_is_seen_by_the_other_children_and_is_free_again_afterwards() -> None:
    slots, run = Slots(2), uuid4()
    told, tell = os.pipe()
    go, leave = os.pipe()
    child = os.fork()
    if child == 0:
        slots.narrow(0)
        with slots.held(run):
            os.write(tell, b"!")
            os.read(go, 1)
        os._exit(0)
    os.read(told, 1)
    slots.narrow(1)
    with slots.held(run) as seat:
        assert seat is not None
        assert seat.is_beyond_half()
        os.write(leave, b"!")
        os.waitpid(child, 0)
        assert not seat.is_beyond_half()


def test_more_work_than_slots_has_no_seat_and_no_rule() -> None:
    slots, run = Slots(1), uuid4()
    with slots.held(run), slots.held(run) as seat:
        assert seat is None
