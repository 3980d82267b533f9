"""Chains, chords and single messages between real workers: good ones, and what goes wrong."""

from __future__ import annotations

from collections import Counter

import pytest

from orchestrator.tasks import run_step
from tests.chaos import checks, shapes
from tests.chaos.meddler import (
    PREFIX,
    Meddler,
    Trouble,
    double,
    faithful,
    lose_once,
    read_url,
    reorder,
)
from tests.chaos.place import Place
from tests.chaos.processes import WORKERS
from tests.tasks.conftest import CHORD, SHAPES, SHORT, FuseEverywhere

pytestmark = [pytest.mark.stack, pytest.mark.timeout(240)]


@pytest.mark.parametrize("fuse", [True, False], ids=["fused", "one-task-a-step"])
def test_the_carriers_alone_bring_every_run_to_its_end(
    quiet: Place, fused: FuseEverywhere, fuse: bool
) -> None:
    """No sweep runs here: a chain that lost its tail or a chord that did not fire would show."""
    fused(fuse)
    quiet.fleet.start_ready(WORKERS, fuse=fuse)

    runs = {quiet.start(shape): shape for shape in SHAPES}
    quiet.await_end(list(runs))

    for run, shape in runs.items():
        quiet.assert_right(shape, run)


@pytest.mark.parametrize("fuse", [True, False], ids=["fused", "one-task-a-step"])
@pytest.mark.parametrize("trouble", [lose_once, double, reorder])
def test_runs_end_right_although_each_carrier_is(
    quiet: Place, fused: FuseEverywhere, trouble: Trouble, fuse: bool
) -> None:
    fused(fuse)
    url = quiet.world.urls["BROKER_URL"]
    with Meddler(url, trouble, seed=3) as meddler:
        quiet.fleet.start_ready(fuse=fuse, read_url=read_url(url))
        runs = {quiet.start(shape): shape for shape in SHAPES}
        quiet.await_end(list(runs), seconds=90)
        quiet.fleet.stop()

    for run, shape in runs.items():
        quiet.assert_right(shape, run)
    assert checks.breaches() == []
    assert min(meddler.kinds()[kind] for kind in ("single", "chain", "chord")) > 0
    assert meddler.handed != meddler.taken  # there was trouble indeed


def test_a_copy_that_finds_nothing_to_do_ends_its_chain(
    quiet: Place, fused: FuseEverywhere
) -> None:
    """Else every copy would send copies of all that follows, and those again."""
    fused(False)
    run = quiet.start(shapes.ONE_QUEUE)
    with quiet.world.redis() as client:
        (message,) = client.lrange(f"{PREFIX}tool", 0, -1)
        client.lpush(f"{PREFIX}tool", *[message] * 20)
    url = quiet.world.urls["BROKER_URL"]
    with Meddler(url, faithful) as meddler:
        quiet.fleet.start_ready(WORKERS, fuse=False, read_url=read_url(url))
        quiet.await_end([run])
        quiet.fleet.until(lambda: not _waiting(quiet, "tool"), 10)

    assert len(meddler.taken) == 21 + 11  # the copies of the first link, then each link once


def test_without_pulse_the_ticks_of_two_beats_fire_timers_and_find_lost_messages(
    quiet: Place,
) -> None:
    waits, lost = quiet.start(shapes.PAUSE), quiet.start(SHORT)
    quiet.world.flush_broker()

    quiet.fleet.start_ready((*WORKERS, "beat", "beat"))
    quiet.await_end([waits, lost])

    quiet.assert_right(shapes.PAUSE, waits)
    quiet.assert_right(SHORT, lost)


def test_only_headers_of_chords_store_a_result(quiet: Place) -> None:
    with Meddler(quiet.world.urls["BROKER_URL"], faithful) as meddler:
        quiet.fleet.start_ready(WORKERS, read_url=read_url(quiet.world.urls["BROKER_URL"]))
        quiet.await_end([quiet.start(CHORD), quiet.start(shapes.CHAIN)])
        with quiet.world.redis() as client:
            stored = client.keys(f"{PREFIX}celery-task-meta-*")
            lives = [client.ttl(key) for key in stored]

    assert meddler.kinds()["chord"] == 4
    assert len(stored) == 4
    assert all(0 < life <= 3600 for life in lives)


def test_a_chord_whose_counter_was_flushed_still_comes_to_its_join(quiet: Place) -> None:
    run = quiet.start(CHORD)
    with quiet.world.redis() as client:
        kept = {queue: client.lrange(PREFIX + queue, 0, -1) for queue in ("tool", "agent")}
    quiet.world.flush_broker()
    with quiet.world.redis() as client:
        for queue, raws in kept.items():
            client.rpush(PREFIX + queue, *raws[:1])  # one header each is left, no counter

    quiet.fleet.start_ready()
    quiet.await_end([run])

    quiet.assert_right(CHORD, run)


def test_a_forged_message_starts_nothing(quiet: Place) -> None:
    run = quiet.start(SHORT)
    quiet.world.flush_broker()
    run_step.apply_async((str(run), "s3", []), queue="tool")
    quiet.fleet.start_ready(WORKERS)
    quiet.fleet.until(lambda: not _waiting(quiet, "tool"), 10)

    assert quiet.bodies(run) == Counter()
    quiet.fleet.start("pulse")  # finds that the true message was lost
    quiet.await_end([run])
    quiet.assert_right(SHORT, run)


def _waiting(place: Place, queue: str) -> int:
    with place.world.redis() as client:
        return int(client.llen(PREFIX + queue))
