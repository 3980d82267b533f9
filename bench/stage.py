"""The stage of one bench: workers of both sides, their marks, and CPU by process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench import machine
from bench.documents import BODIES
from bench.marks import FILE_VARIABLE, Marks
from bench.options import PLAIN_PORT_VARIABLE
from bench.plain import Layout
from bench.sides import Ours, Plain, Side
from bench.workers import Crew
from config.embedded import Child

POSTGRES_VARIABLE = "BENCH_POSTGRES_PID"
VALKEY_VARIABLE = "BENCH_VALKEY_PID"


@dataclass(slots=True, kw_only=True)
class Stage:
    """Everything a figure needs. ``late`` and ``early`` are the layouts of plain Celery."""

    quick: bool
    ours: Ours
    late: Sequence[Side]
    early: Sequence[Side]
    marks: Marks
    crew: Crew
    processes: Mapping[str, list[Child]]
    pulse: list[Child] = field(default_factory=list)

    def read(self) -> machine.Reading:
        """CPU counters of everything that we run, by name."""
        trees = {name: [c.pid for c in children] for name, children in self.processes.items()}
        trees["pulse"] = [child.pid for child in self.pulse]
        trees["postgres"] = [int(os.environ[POSTGRES_VARIABLE])]
        trees["valkey"] = [int(os.environ[VALKEY_VARIABLE])]
        reading = machine.read(trees)
        own = sum(os.times()[:2])
        return machine.Reading(reading.at, reading.busy, {**reading.by_name, "bench": own})

    def memory(self) -> int:
        """Bytes of memory that the product's workers hold of their own."""
        return machine.memory([child.pid for child in self.processes["workers"]])

    def start_pulse(self) -> None:
        """The sweeps run, as in the product; nothing when they do already."""
        if not self.pulse:
            self.pulse.append(self.crew.pulse())
            self._await_rest(self.pulse[0].pid)

    def _await_rest(self, pid: int) -> None:
        """Imports are over: the process took CPU, and takes next to none any more."""
        last = 0.0
        until = time.monotonic() + 30
        while time.monotonic() < until:
            time.sleep(0.4)
            spent = machine.read({"it": [pid]}).by_name["it"]
            if spent - last < 0.05 < spent:
                return
            last = spent
        raise TimeoutError(f"process {pid} does not come to rest")

    def stop_pulse(self) -> None:
        """Nothing runs but what is asked for."""
        while self.pulse:
            self.pulse.pop().stop()

    def run_alone(self, side: Side, shape: str) -> str:
        """Start one run and wait for its end; its key."""
        self.marks.skip()
        key = side.start(shape)
        try:
            self.marks.await_bodies(BODIES[shape])
        except TimeoutError as error:
            raise TimeoutError(
                f"{side.name}, {shape}, run {key}: {error}. {side.explain(key)}"
            ) from error
        side.await_ends([key])
        return key

    def warm_up(self, sides: Sequence[Side], shapes: Sequence[str], *, rounds: int = 6) -> None:
        """Imports, connections, caches and prepared plans of every pool child."""
        for side in sides:
            for shape in shapes:
                for _ in range(rounds):
                    self.run_alone(side, shape)


@contextmanager
def staged(
    folder: Path,
    layouts: Sequence[Layout],
    *,
    quick: bool,
    two_queues: bool = False,
    web: bool = False,
) -> Iterator[Stage]:
    """Workers of the product and of plain Celery's ``layouts`` for the length of the block.
    ``two_queues``: and one of each for a second queue. ``web``: and a web process of each."""
    path = Path(os.environ[FILE_VARIABLE])
    path.touch(mode=0o600)
    with ExitStack() as running:
        crew = Crew(folder, running)
        product = crew.product()
        if two_queues:
            product |= crew.product_other()
        served = crew.web() if web else {}
        reference = crew.plain(layouts)
        if two_queues:
            reference |= crew.plain_other([layout for layout in layouts if layout.acks_late])
        if web and layouts:
            served |= crew.plain_web(int(os.environ[PLAIN_PORT_VARIABLE]))
        yield Stage(
            quick=quick,
            ours=Ours(),
            late=[Plain(layout) for layout in layouts if layout.acks_late],
            early=[Plain(layout) for layout in layouts if not layout.acks_late],
            marks=Marks(path),
            crew=crew,
            processes={
                "workers": list(product.values()),
                "plain workers": list(reference.values()),
                "web": list(served.values()),
            },
        )
