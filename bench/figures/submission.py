"""Submission over HTTP by callers that do not wait for each other: an open loop (target W8)."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from bench import machine
from bench.doors import Door, Offer, offer, open_plain, open_product
from bench.plain import LATE
from bench.report import Figure, Row
from bench.stage import Stage

SHAPE = "single"
RATE = 100.0
CONNECTIONS = 32
LIMIT_MS = 200.0
_STEP = 1.25
_MOST = 1_000.0


def measure(stage: Stage) -> Iterator[Figure]:
    """The same random instants for every row. What is started runs meanwhile, on the same cores."""
    ours = open_product(SHAPE)
    plain = open_plain(LATE[0]) if stage.late else None
    seconds = 3.0 if stage.quick else 10.0
    before = stage.read()
    for door in (ours, plain):
        if door is not None:
            _offered(stage, door, RATE, 1.0, CONNECTIONS)  # connections, caches, threads
    few = [_offered(stage, ours, RATE, seconds / 2, count) for count in (1, 8)]
    many = _offered(stage, ours, RATE, seconds, CONNECTIONS)
    theirs = [_offered(stage, plain, RATE, seconds / 2, CONNECTIONS)] if plain else []
    span = machine.between(before, stage.read())
    yield Figure(
        name="W8 submission",
        title=f"{RATE:.0f} starts/s offered over HTTP, {CONNECTIONS} connections, due to answered",
        unit="p99 ms",
        ours=_row(stage.ours.name, many),
        beside=[
            *(_row(f"{stage.ours.name}, {one.connections}", one) for one in few),
            *(_row(f"{LATE[0].name} behind HTTP", one) for one in theirs),
        ],
        as_number=True,
        target=LIMIT_MS,
        note=span.note,
    )
    yield _highest(stage, ours, plain, 2.0 if stage.quick else 4.0)


def _highest(stage: Stage, ours: Door, plain: Door | None, seconds: float) -> Figure:
    held, missed = _climb(stage, ours, seconds, RATE)
    rows = []
    if plain is not None:
        rows.append(("behind HTTP", _climb(stage, plain, seconds, held.rate)[0]))
    return Figure(
        name="W8 highest rate",
        title=f"the most that is answered with a p99 below {LIMIT_MS:.0f} ms,"
        f" {CONNECTIONS} connections, in steps of {_STEP:g}",
        unit="starts/s",
        ours=_rated(stage.ours.name, held),
        beside=[_rated(f"{LATE[0].name} {name}", one) for name, one in rows],
        as_number=True,
        more_is_better=True,
        target=RATE,
        note="first rate that was not held: " + (_words(missed) if missed else "none was tried"),
    )


def _climb(stage: Stage, door: Door, seconds: float, rate: float) -> tuple[Offer, Offer | None]:
    """The last rate that was held, and the first that was not: upwards from ``rate``, or down."""
    missed, held = None, _offered(stage, door, rate, seconds, CONNECTIONS)
    while not _is_held(held):
        rate /= _STEP
        missed, held = held, _offered(stage, door, rate, seconds, CONNECTIONS)
    if missed:
        return held, missed
    while rate < _MOST:
        rate *= _STEP
        tried = _offered(stage, door, rate, seconds, CONNECTIONS)
        if not _is_held(tried):
            return held, tried
        held = tried
    return held, None


def _offered(stage: Stage, door: Door, rate: float, seconds: float, connections: int) -> Offer:
    """One stretch of calls, and the end of all bodies that it started."""
    stage.marks.skip()
    offered = offer(door, SHAPE, rate=rate, seconds=seconds, connections=connections)
    stage.marks.await_bodies(len(offered.waits), every=0.01)
    return offered


def _is_held(offered: Offer) -> bool:
    """Answered in time, and no queue of calls has grown by the end."""
    return _ms(offered)[2] < LIMIT_MS and offered.answered > 0.9 * offered.rate


def _ms(offered: Offer) -> tuple[float, float, float]:
    cuts = statistics.quantiles(offered.waits, n=100, method="inclusive")
    return cuts[49] * 1e3, cuts[94] * 1e3, cuts[98] * 1e3


def _row(side: str, offered: Offer) -> Row:
    p50, p95, p99 = _ms(offered)
    shown = {"p50 ms": p50, "p95 ms": p95, "answered/s": offered.answered}
    return Row(side=side, value=p99, shown=shown)


def _rated(side: str, offered: Offer) -> Row:
    p50, p95, p99 = _ms(offered)
    shown = {"p50 ms": p50, "p95 ms": p95, "p99 ms": p99, "answered/s": offered.answered}
    return Row(side=side, value=offered.rate, shown=shown)


def _words(offered: Offer) -> str:
    return f"{offered.rate:.0f}/s, p99 {_ms(offered)[2]:.0f} ms, {offered.answered:.0f}/s answered"
