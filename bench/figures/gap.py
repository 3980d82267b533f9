"""The gap between steps: a chain of ten no-ops, one run at a time (target W2)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from bench import machine
from bench.report import Figure, Row, percentiles
from bench.sides import Side
from bench.stage import Stage

SHAPE = "chain"


def measure(stage: Stage) -> Iterator[Figure]:
    """Sides take turns, so that a noisy minute of the machine meets all of them."""
    sides = [stage.ours, *stage.late]
    stage.warm_up(sides, [SHAPE])
    gaps: dict[str, list[float]] = {side.name: [] for side in sides}
    before = stage.read()
    for _ in range(3 if stage.quick else 12):
        for side in sides:
            gaps[side.name] += gaps_of(stage, side, SHAPE, 10)
    span = machine.between(before, stage.read())
    ours, *plain = [row(name, values) for name, values in gaps.items()]
    yield Figure(
        name="W2 gap",
        title="end of a body to the start of the next, chain of 10, one run at a time",
        unit="p50 ms",
        ours=ours,
        plain=plain,
        target=0.55,
        note=span.note,
    )


def gaps_of(stage: Stage, side: Side, shape: str, runs: int) -> list[float]:
    """The gaps, in ms, of so many runs one after the other."""
    gaps: list[float] = []
    for _ in range(runs):
        key = stage.run_alone(side, shape)
        bodies = stage.marks.by_run()[key]
        gaps += [(b.began - a.ended) / 1e6 for a, b in itertools.pairwise(bodies)]
    return gaps


def row(name: str, gaps: list[float]) -> Row:
    """A side's row of the table."""
    p50, p95 = percentiles(gaps)
    return Row(side=name, value=p50, shown={"p95 ms": p95, "gaps": float(len(gaps))})
