"""From the start call to the first body, idle, one start each 200 ms (target W1)."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench import machine
from bench.doors import OursOverHttp, PlainOverHttp, open_product
from bench.plain import LATE
from bench.report import Figure, Row, percentiles
from bench.sides import Side
from bench.stage import Stage

SHAPE = "single"
PAUSE_S = 0.2


def measure(stage: Stage) -> Iterator[Figure]:
    """By ``engine.start_run`` and by POST, against ``apply_async`` of a chain of one."""
    over_http = OursOverHttp(open_product(SHAPE))
    behind_http = [PlainOverHttp(layout) for layout in LATE[: len(stage.late[:1])]]
    sides = [stage.ours, over_http, *stage.late, *behind_http]
    stage.warm_up(sides, [SHAPE])
    waits: dict[str, list[float]] = {side.name: [] for side in sides}
    calls: dict[str, list[float]] = {side.name: [] for side in sides}
    before = stage.read()
    for _ in range(25 if stage.quick else 110):
        for side in sides:
            wait, call = once(stage, side)
            waits[side.name].append(wait)
            calls[side.name].append(call)
    span = machine.between(before, stage.read())
    rows = {side.name: _row(side.name, waits[side.name], calls[side.name]) for side in sides}
    for name, side, target in (
        ("W1 start", stage.ours, 2.5),
        ("W1 start over HTTP", over_http, 12.0),
    ):
        yield Figure(
            name=name,
            title="start call to the first body, idle, one each 200 ms",
            unit="p50 ms",
            ours=rows[side.name],
            plain=[rows[one.name] for one in stage.late],
            beside=[rows[one.name] for one in behind_http if side is over_http],
            as_difference=True,
            target=target,
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
