"""Fan-out 1 -> 50 -> 1, as fifty branches and as a for_each, and 1 -> 1,000 -> 1 as a for_each,
against a chord (target W4)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from bench import machine
from bench.documents import BODIES, WIDTHS
from bench.report import Figure, Row, percentiles
from bench.sides import Side
from bench.stage import Stage
from bench.statements import forget_statements, lines, statements

OURS = ("branches", "items")


def measure(stage: Stage) -> Iterator[Figure]:
    """From the start call to the end of the body behind the join, one run at a time."""
    yield from _compare(stage, OURS, rounds=8 if stage.quick else 30, target=0.3)
    wide = "items200" if stage.quick else "items1000"
    yield from _compare(stage, (wide,), rounds=4 if stage.quick else 8, target=0.3)


def _compare(
    stage: Stage, shapes: Sequence[str], *, rounds: int, target: float
) -> Iterator[Figure]:
    stage.warm_up([stage.ours], shapes)
    stage.warm_up(stage.late, shapes[:1], rounds=2)
    tries: list[tuple[str, Side, str]] = [(shape, stage.ours, shape) for shape in shapes]
    tries += [(side.name, side, shapes[0]) for side in stage.late]
    times: dict[str, list[float]] = {name: [] for name, _, _ in tries}
    before = stage.read()
    for _ in range(rounds):
        for name, side, shape in tries:
            times[name].append(_once(stage, side, shape))
    span = machine.between(before, stage.read())
    costs = {shape: _statements(stage, shape) for shape in shapes}
    rows = {name: _row(name, values) for name, values in times.items()}
    for shape in shapes:
        yield Figure(
            name=f"W4 fan-out, {shape}",
            title=f"1 -> {WIDTHS[shape]} -> 1 from the start call to the end of the last body",
            unit="p50 ms",
            ours=rows[shape],
            plain=[rows[side.name] for side in stage.late],
            target=target,
            note=span.note,
            details=costs[shape],
        )


def _once(stage: Stage, side: Side, shape: str) -> float:
    called = time.monotonic_ns()
    key = stage.run_alone(side, shape)
    bodies = stage.marks.by_run()[key]
    return (max(body.ended for body in bodies) - called) / 1e6


def _statements(stage: Stage, shape: str) -> list[str]:
    """What our runs of this shape ask of PostgreSQL; apart, so that it disturbs no clock."""
    forget_statements()
    runs = 3
    for _ in range(runs):
        stage.run_alone(stage.ours, shape)
    found = [one for one in statements() if "finished_at" not in one.text[-120:]]
    return lines(found, runs * BODIES[shape], limit=8)


def _row(name: str, times: list[float]) -> Row:
    p50, p95 = percentiles(times)
    return Row(side=name, value=p50, shown={"p95 ms": p95, "best ms": min(times)})
