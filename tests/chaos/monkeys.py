"""What is done to a running product: each monkey hurts one thing, as a bad day would."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from contextlib import suppress

import psutil

from tests.chaos.processes import WORKERS, World

Monkey = Callable[[World, random.Random], None]


def kill_a_pool_child(world: World, rng: random.Random) -> None:
    """kill -9 of one child of a worker's pool; the worker makes a new one."""
    pools = [child for p in world.fleet.alive("worker-tool", "worker-agent") for child in p.pool()]
    if pools:
        with suppress(psutil.NoSuchProcess):
            rng.choice(pools).send_signal(signal.SIGKILL)


def kill_a_worker(world: World, rng: random.Random) -> None:
    """kill -9 of a whole worker; its pool dies with it."""
    workers = world.fleet.alive(*WORKERS)
    if workers:
        world.fleet.kill(rng.choice(workers))


def kill_the_engine_worker(world: World, rng: random.Random) -> None:
    """kill -9 of the worker that waits, routes and starts children."""
    for worker in world.fleet.alive("worker-engine"):
        world.fleet.kill(worker)


def kill_pulse(world: World, rng: random.Random) -> None:
    """kill -9 of the sweeps' process."""
    for pulse in world.fleet.alive("pulse"):
        world.fleet.kill(pulse)


def kill_a_beat(world: World, rng: random.Random) -> None:
    """kill -9 of one of the two beats."""
    beats = world.fleet.alive("beat")
    if beats:
        world.fleet.kill(rng.choice(beats))


def stop_a_worker(world: World, rng: random.Random) -> None:
    """An orderly stop, as in a deployment, that is followed by a new start."""
    workers = world.fleet.alive(*WORKERS)
    if workers:
        rng.choice(workers).signal(signal.SIGTERM)


def flush_the_broker(world: World, rng: random.Random) -> None:
    """FLUSHALL."""
    world.flush_broker()


def restart_the_broker(world: World, rng: random.Random) -> None:
    """kill -9 and a new start on the same port."""
    world.kill_broker()
    world.start_broker()


def restart_postgres(world: World, rng: random.Random) -> None:
    """An immediate stop and a new start: every connection is cut, the log is replayed."""
    world.stop_postgres()
    world.start_postgres()


ALL: tuple[Monkey, ...] = (
    kill_a_pool_child,
    kill_a_worker,
    kill_the_engine_worker,
    kill_pulse,
    kill_a_beat,
    stop_a_worker,
    flush_the_broker,
    restart_the_broker,
    restart_postgres,
)
