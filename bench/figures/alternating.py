"""The gap between steps of which every second one is on another queue (target W2)."""

from __future__ import annotations

from collections.abc import Iterator

from bench import machine
from bench.figures.gap import gaps_of, row
from bench.report import Figure
from bench.stage import Stage

SHAPE = "alternating"


def measure(stage: Stage) -> Iterator[Figure]:
    """A chain of ten no-ops over two queues with a worker each, on both sides."""
    sides = [stage.ours, *stage.late]
    stage.warm_up(sides, [SHAPE])
    gaps: dict[str, list[float]] = {side.name: [] for side in sides}
    before = stage.read()
    for _ in range(2 if stage.quick else 8):
        for side in sides:
            gaps[side.name] += gaps_of(stage, side, SHAPE, 10)
    span = machine.between(before, stage.read())
    ours, *plain = [row(name, values) for name, values in gaps.items()]
    yield Figure(
        name="W2 gap, two queues",
        title="end of a body to the start of the next, chain of 10 whose steps alternate between"
        " two queues, one run at a time",
        unit="p50 ms",
        ours=ours,
        plain=plain,
        target=1.8,
        note=span.note,
    )
