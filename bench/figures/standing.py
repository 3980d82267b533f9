"""Latency of new work while very many runs wait in the database (target W7)."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from django.db import connection

from bench import machine, seeding
from bench.figures.gap import gaps_of
from bench.figures.start import once
from bench.marks import wait_until
from bench.report import Figure, Row, percentiles
from bench.stage import Stage
from orchestrator.models import Run

SHAPE = "gate"
Latency = tuple[list[float], list[float]]


def measure(stage: Stage) -> Iterator[Figure]:
    """W1 and W2 in an empty database, with some standing runs, with a million."""
    some, many = (1_000, 30_000) if stage.quick else (10_000, 1_000_000)
    seeding.clear()
    before = stage.read()
    stage.warm_up([stage.ours], ["single", "chain"])
    empty = _latency(stage)
    ensure(stage, some)
    with_some = _latency(stage)
    seconds = ensure(stage, many)
    with_many = _latency(stage)
    span = machine.between(before, stage.read())
    note = f"{many - some} seeded in {seconds:.0f} s; {span.note}"
    names = ["with none", f"with {some}", f"with {many}"]
    for n, (name, title) in enumerate(_TITLES):
        rows = [
            _row(called, found[n])
            for called, found in zip(names, (empty, with_some, with_many), strict=True)
        ]
        yield Figure(
            name=name,
            title=title.format(many=many),
            unit="p95 ms",
            ours=rows[2],
            plain=rows[:1],
            beside=rows[1:2],
            target=1.25,
            note=note,
        )


_TITLES = (
    ("W7 start", "start call to the first body while {many} runs wait, against an empty database"),
    ("W7 gap", "gap in a chain of 10 while {many} runs wait, against an empty database"),
)


def ensure(stage: Stage, wanted: int) -> float:
    """At least so many runs wait at their gate; the seconds that it took to seed the rest."""
    standing = _standing()
    if standing >= wanted:
        return 0.0
    key = UUID(stage.ours.start(SHAPE))
    wait_until(lambda: Run.objects.filter(pk=key, state="waiting").exists(), "a run to wait")
    mould = seeding.take_mould(key)
    seconds = seeding.cast(mould, wanted - standing, first=standing)
    seeding.settle_down()
    return seconds


def _standing() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM orchestrator_step WHERE state = 'waiting'")
        count: int = cursor.fetchone()[0]
    return count


def _latency(stage: Stage) -> Latency:
    starts = [once(stage, stage.ours)[0] for _ in range(25 if stage.quick else 100)]
    return starts, gaps_of(stage, stage.ours, "chain", 10 if stage.quick else 40)


def _row(name: str, times: list[float]) -> Row:
    p50, p95 = percentiles(times)
    return Row(side=name, value=p95, shown={"p50 ms": p50, "samples": float(len(times))})
