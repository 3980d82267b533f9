"""From the start call to the first body, idle, one start each 200 ms (target W1)."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench import machine
from bench.report import Figure, Row, percentiles
from bench.sides import Side
from bench.stage import Stage

SHAPE = "single"
PAUSE_S = 0.2


def measure(stage: Stage) -> Iterator[Figure]:
    """``engine.start_run`` against ``apply_async`` of a chain of one."""
    sides = [stage.ours, *stage.late]
    stage.warm_up(sides, [SHAPE])
    waits: dict[str, list[float]] = {side.name: [] for side in sides}
    calls: dict[str, list[float]] = {side.name: [] for side in sides}
    before = stage.read()
    for _ in range(25 if stage.quick else 120):
        for side in sides:
            wait, call = once(stage, side)
            waits[side.name].append(wait)
            calls[side.name].append(call)
    span = machine.between(before, stage.read())
    ours, *plain = [_row(side.name, waits[side.name], calls[side.name]) for side in sides]
    yield Figure(
        name="W1 start",
        title="start call to the first body, idle, one each 200 ms",
        unit="p50 ms",
        ours=ours,
        plain=plain,
        as_difference=True,
        target=5.0,
        note=span.note,
    )


def once(stage: Stage, side: Side) -> tuple[float, float]:
    """One start after a pause: ms to the first body, and of the call alone."""
    time.sleep(PAUSE_S)
    stage.marks.skip()
    called = time.monotonic_ns()
    key = side.start(SHAPE)
    returned = time.monotonic_ns()
    stage.marks.await_bodies(1)
    first = stage.marks.by_run()[key][0]
    return (first.began - called) / 1e6, (returned - called) / 1e6


def _row(name: str, waits: list[float], calls: list[float]) -> Row:
    p50, p95 = percentiles(waits)
    return Row(side=name, value=p50, shown={"p95 ms": p95, "call p50 ms": percentiles(calls)[0]})
