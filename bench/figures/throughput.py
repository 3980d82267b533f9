"""Many runs at once: 500 chains of ten, full history (target W3).

Of the rounds of a side the quieter half counts: those in which strangers used the least CPU.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from bench import machine
from bench.documents import CHAIN_STEPS
from bench.report import Figure, Row
from bench.sides import Ours, Side
from bench.stage import Stage
from bench.statements import Statement, forget_statements, lines, statements, stop_counting

SHAPE = "chain"


@dataclass(frozen=True, slots=True)
class Burst:
    """One round of one side: steps a second, CPU a step by process, what a start cost."""

    rate: float
    start_ms: float
    span: machine.Span
    steps: int

    def cpu_ms(self, name: str) -> float:
        """CPU a step of the processes called ``name``."""
        return self.span.cpu[name] * 1000 / self.steps


def measure(stage: Stage) -> Iterator[Figure]:
    """All runs are started while the workers are held, then the workers are let go."""
    sides = [stage.ours, *stage.late, *stage.early]
    stage.warm_up(sides, [SHAPE])
    runs, rounds = (150, 2) if stage.quick else (500, 3)
    bursts: dict[str, list[Burst]] = {side.name: [] for side in sides}
    for _ in range(rounds):
        for side in sides:
            try:
                bursts[side.name].append(burst(stage, side, runs))
            except TimeoutError as error:
                raise TimeoutError(f"{side.name}: {error}") from error
    found = counted(stage, runs)
    quiet = {name: _quieter_half(rows) for name, rows in bursts.items()}
    ours, *plain = [_row(side, quiet[side.name]) for side in sides]
    trips = sum(one.calls for one in found if one.is_round_trip)
    ours = replace(ours, shown={**ours.shown, "round trips": trips / (runs * CHAIN_STEPS)})
    noise = max((one.span for rows in quiet.values() for one in rows), key=lambda s: s.others)
    yield Figure(
        name="W3 throughput",
        title=f"{runs} runs x {CHAIN_STEPS} steps at once, the quieter half of {rounds} rounds",
        unit="steps/s",
        ours=ours,
        plain=plain,
        more_is_better=True,
        target=3.5,
        note=f"noisiest round that counts: {noise.note}; CPU in ms a step",
        details=lines(found, runs * CHAIN_STEPS, limit=12),
    )


def counted(stage: Stage, runs: int) -> list[Statement]:
    """The statements of a round of ours that is not timed, for counting costs time."""
    forget_statements()
    try:
        burst(stage, stage.ours, runs)
        return statements()
    finally:
        stop_counting()


def burst(stage: Stage, side: Side, runs: int) -> Burst:
    """From the first body's start to the end of the last run."""
    side.hold()
    stage.marks.skip()
    called = time.monotonic()
    keys = [side.start(SHAPE) for _ in range(runs)]
    start_ms = (time.monotonic() - called) * 1000 / runs
    before = stage.read()
    side.release()
    steps = runs * CHAIN_STEPS
    stage.marks.await_bodies(steps, every=0.01)
    side.await_ends(keys)
    ended = time.monotonic_ns()
    span = machine.between(before, stage.read())
    bodies = [body for found in stage.marks.by_run().values() for body in found]
    first = min(body.began for body in bodies)
    if not isinstance(side, Ours):
        ended = max(body.ended for body in bodies)
    return Burst(steps / ((ended - first) / 1e9), start_ms, span, steps)


def _quieter_half(bursts: Sequence[Burst]) -> list[Burst]:
    return sorted(bursts, key=lambda one: one.span.others)[: (len(bursts) + 1) // 2]


def _row(side: Side, bursts: Sequence[Burst]) -> Row:
    is_ours = isinstance(side, Ours)
    names = ["workers" if is_ours else "plain workers", "postgres", "valkey"]
    names += ["pulse"] if is_ours else []
    cpu = {name: statistics.median(one.cpu_ms(name) for one in bursts) for name in names}
    shown: dict[str, float | str] = {
        name.removeprefix("plain "): value for name, value in cpu.items()
    }
    shown["cpu"] = sum(cpu.values())
    shown["start ms a run"] = statistics.median(one.start_ms for one in bursts)
    return Row(side=side.name, value=statistics.median(one.rate for one in bursts), shown=shown)
