"""How long a run waits because the broker lost everything."""

from __future__ import annotations

import random
from collections.abc import Iterator
from statistics import median
from uuid import UUID

from tests.chaos import shapes
from tests.chaos.shapes import Shape
from tests.drill.line import Line, Size
from tests.drill.scene import BOOTED, Scene, ask, scene, spread

BOUND_S = 5.0
SHAPES = (shapes.CHAIN, shapes.FAN, shapes.LANES, shapes.ONE_QUEUE)
PACE_MS = 120
WAVES = {Size.QUICK: 2, Size.SHORT: 5, Size.LONG: 40}
Sample = tuple[Shape, float]


def flushed(size: Size, seed: int) -> Iterator[Line]:
    """Waves of runs without and with FLUSHALL in their middle; each against its shape's median."""
    rng = random.Random(seed)
    with scene(lease_s=15, seed=seed, publish=SHAPES) as here:
        here.fleet.start_ready(BOOTED)
        _wave(here, rng, flush=False)  # connections, caches
        calm = [sample for _ in range(3) for sample in _wave(here, rng, flush=False)]
        usual = {shape.name: median(s for other, s in calm if other is shape) for shape in SHAPES}
        hurt = [sample for _ in range(WAVES[size]) for sample in _wave(here, rng, flush=True)]
        added = [max(0.0, seconds - usual[shape.name]) for shape, seconds in hurt]
        figures = spread(added, "s added") | {
            "flushes": WAVES[size],
            "usual s": round(median(usual.values()), 2),
        }
        broken = here.faults()
        if (p99 := spread(added)["p99 s"]) > BOUND_S:
            broken.append(f"p99 of the added delay is {p99} s, more than {BOUND_S:.0f} s")
        yield Line(
            "P4", "a broker flush in the middle of a run adds at most 5 s (p99)", len(added),
            figures, broken,
        )  # fmt: skip


def _wave(here: Scene, rng: random.Random, *, flush: bool) -> list[Sample]:
    """Two runs of each shape under way at once; how long each took, by its own history."""
    given = {"sleep_ms": PACE_MS, "items": list(range(8))}
    runs: dict[UUID, Shape] = {
        here.place.start(shape, **given, value=rng.randrange(1000)): shape
        for shape in SHAPES
        for _ in range(2)
    }
    if flush:
        here.fleet.until(lambda: all(here.place.bodies(run) for run in runs), 20)
        here.fleet.listen(rng.random() * 0.5)
        here.world.flush_broker()
    here.place.await_end(list(runs), 60)
    took = ask(
        "SELECT run_id, extract(epoch FROM max(at) - min(at))::float8 FROM orchestrator_event"
        " WHERE run_id = ANY(%s) GROUP BY run_id",
        list(runs),
    )
    return [(runs[run], seconds) for run, seconds in took]
