"""Forty light and ten heavy steps in sequence, the heavy ones on a queue of their own (W5)."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench import machine
from bench.documents import HEAVY_EACH, HEAVY_MS, MIXED_STEPS
from bench.report import Figure, Row, percentiles
from bench.sides import Side
from bench.stage import Stage

SHAPE = "mixed"
N_HEAVY = MIXED_STEPS // HEAVY_EACH


def measure(stage: Stage) -> Iterator[Figure]:
    """From the start call to the end of the last body, one run at a time."""
    sides = [stage.ours, *stage.late]
    stage.warm_up(sides, [SHAPE], rounds=2)
    times: dict[str, list[float]] = {side.name: [] for side in sides}
    before = stage.read()
    for _ in range(3 if stage.quick else 12):
        for side in sides:
            times[side.name].append(_once(stage, side))
    span = machine.between(before, stage.read())
    ours, *plain = [_row(name, values) for name, values in times.items()]
    yield Figure(
        name="W5 light and heavy",
        title=f"{MIXED_STEPS - N_HEAVY} light and {N_HEAVY} heavy steps ({HEAVY_MS} ms, on a second"
        " queue) in sequence, start call to the end of the last body",
        unit="p50 ms",
        ours=ours,
        plain=plain,
        target=1.0,
        note=span.note,
    )


def _once(stage: Stage, side: Side) -> float:
    called = time.monotonic_ns()
    key = stage.run_alone(side, SHAPE)
    return (stage.marks.by_run()[key][-1].ended - called) / 1e6


def _row(name: str, times: list[float]) -> Row:
    p50, p95 = percentiles(times)
    beside = (p50 - N_HEAVY * HEAVY_MS) / MIXED_STEPS
    return Row(side=name, value=p50, shown={"p95 ms": p95, "ms a step beside bodies": beside})
