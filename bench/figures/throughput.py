"""Many runs at once: 500 chains of ten, full history (target W3)."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench import machine
from bench.documents import CHAIN_STEPS
from bench.report import Figure, Row
from bench.sides import Ours, Side
from bench.stage import Stage

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
    runs, rounds = (100, 1) if stage.quick else (500, 3)
    bursts: dict[str, list[Burst]] = {side.name: [] for side in sides}
    for _ in range(rounds):
        for side in sides:
            bursts[side.name].append(burst(stage, side, runs))
    ours, *plain = [_row(side, bursts[side.name]) for side in sides]
    noise = max((one.span for rows in bursts.values() for one in rows), key=lambda s: s.others)
    yield Figure(
        name="W3 throughput",
        title=f"{runs} runs x {CHAIN_STEPS} steps at once, median of {rounds}",
        unit="steps/s",
        ours=ours,
        plain=plain,
        more_is_better=True,
        target=1.0,
        note=f"noisiest round: {noise.note}; CPU in ms a step",
    )


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


def _row(side: Side, bursts: Sequence[Burst]) -> Row:
    workers = "workers" if isinstance(side, Ours) else "plain workers"
    cpu = {
        "workers": statistics.median(one.cpu_ms(workers) for one in bursts),
        "postgres": statistics.median(one.cpu_ms("postgres") for one in bursts),
        "valkey": statistics.median(one.cpu_ms("valkey") for one in bursts),
    }
    shown: dict[str, float | str] = {**cpu, "cpu": sum(cpu.values())}
    shown["start ms a run"] = statistics.median(one.start_ms for one in bursts)
    return Row(side=side.name, value=statistics.median(one.rate for one in bursts), shown=shown)
