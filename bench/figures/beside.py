"""Small runs beside one very wide fan-out (target W9)."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench import machine
from bench.documents import BODIES
from bench.report import Figure, Row, percentiles
from bench.stage import Stage

SMALL = "three"


def measure(stage: Stage) -> Iterator[Figure]:
    """The same small runs, one each so many milliseconds: alone, and while the wide run works."""
    wide, count, every_s = ("items1000", 30, 0.01) if stage.quick else ("items5000", 100, 0.015)
    stage.warm_up([stage.ours], [SMALL, "items200"])
    before = stage.read()
    alone, _ = _small_runs(stage, count, every_s)
    seconds_alone = _wide_alone(stage, wide)
    key = _begin(stage, wide)
    beside, last_ended = _small_runs(stage, count, every_s, others=BODIES[wide])
    stage.ours.await_ends([key])
    bodies = stage.marks.by_run()[key]
    took = (bodies[-1].ended - bodies[0].began) / 1e9
    during = sum(body.ended <= last_ended for body in bodies)
    span = machine.between(before, stage.read())
    yield Figure(
        name="W9 small runs beside a fan-out",
        title=f"{count} runs of three steps, one each {every_s * 1000:.0f} ms, from the start call"
        f" to the last body's end, beside 1 -> {BODIES[wide] - 2} -> 1, against an idle machine",
        unit="p95 ms",
        ours=_row("beside it", beside),
        plain=[_row("idle", alone)],
        as_difference=True,
        target=150.0,
        note=f"{during} of its {len(bodies)} bodies ended meanwhile; the fan-out took"
        f" {seconds_alone:.2f} s alone, {took:.2f} s beside the small runs; {span.note}",
    )


def _begin(stage: Stage, wide: str) -> str:
    """The wide run, at work on its items."""
    stage.marks.skip()
    key = stage.ours.start(wide)
    stage.marks.await_bodies(20)
    return key


def _wide_alone(stage: Stage, wide: str) -> float:
    key = stage.run_alone(stage.ours, wide)
    bodies = stage.marks.by_run()[key]
    return (bodies[-1].ended - bodies[0].began) / 1e9


def _small_runs(
    stage: Stage, count: int, every_s: float, *, others: int = 0
) -> tuple[list[float], int]:
    """From start call to the last body's end of each, in ms; and when the last of them ended.
    ``others``: so many bodies of another run end meanwhile."""
    if not others:
        stage.marks.skip()
    called: dict[str, int] = {}
    due = time.monotonic()
    for _ in range(count):
        time.sleep(max(due - time.monotonic(), 0))
        due += every_s
        now = time.monotonic_ns()
        called[stage.ours.start(SMALL)] = now
    stage.marks.await_bodies(count * BODIES[SMALL] + others, every=0.005)
    found = stage.marks.by_run()
    ended = {key: max(body.ended for body in found[key]) for key in called}
    return [(ended[key] - at) / 1e6 for key, at in called.items()], max(ended.values())


def _row(name: str, times: list[float]) -> Row:
    p50, p95 = percentiles(times)
    return Row(side=name, value=p95, shown={"p50 ms": p50, "worst ms": max(times)})
