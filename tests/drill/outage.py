"""One service answers 503 to many runs: they wait and burn little, others do not notice."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from django.db import connections

from tests.chaos import shapes
from tests.chaos.shapes import Shape
from tests.drill.line import Line, Size
from tests.drill.providers import Fault
from tests.drill.scene import Scene, ask, scene

AILING = Shape(
    name="calls_outside",
    steps={
        "call": {
            "type": "tool",
            "tool": "drill.order",
            "input": {"reference": "out-${{ input.value }}"},
            "effect": {"key": "out:${{ input.value }}"},
            "service": "outside",
        },
        "then": shapes.work("input.value", "call", queue="engine", input={"sleep_ms": 0}),
    },
)
HEALTHY = Shape(
    name="stays_inside",
    steps={
        "one": shapes.work("input.value", queue="tool", input={"sleep_ms": 0}),
        "two": shapes.work("input.value", "one", queue="engine", input={"sleep_ms": 0}),
    },
)
EXTRA_MS = {Size.QUICK: 1_500.0, Size.SHORT: 150.0, Size.LONG: 150.0}
"""Quick drills share the machine with the rest of the suite: there a neighbour's turn is as long as
a storm's, so the figure of the promise is held by the short and the long size alone."""
PACE_S = 0.1
"""Between two starts of the runs that are measured."""


@dataclass
class Measured:
    """Runs that have nothing to do with the service, started one by one meanwhile."""

    here: Scene
    runs: list[UUID] = field(default_factory=list)

    def start_for(self, seconds: float, *, at_least: int = 0) -> None:
        """Start one each tenth of a second, for so long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until or len(self.runs) < at_least:
            self.runs.append(self.here.place.start(HEALTHY))
            time.sleep(PACE_S)  # the pace of those who start

    def milliseconds(self) -> list[float]:
        """From start to end, by the database's clock."""
        self.here.place.await_end(self.runs, 60)
        found = ask(
            "SELECT extract(epoch FROM finished_at - created_at)::float8 * 1000"
            " FROM orchestrator_run WHERE id = ANY(%s)",
            self.runs,
        )
        return sorted(took for (took,) in found)


def outage(size: Size, seed: int) -> Iterator[Line]:
    """Idle first, then the storm: the difference is what others feel of it."""
    count = {Size.QUICK: 100, Size.SHORT: 1000, Size.LONG: 1000}[size]
    lasts = {Size.QUICK: 4.0, Size.SHORT: 30.0, Size.LONG: 60.0}[size]
    with scene(lease_s=15, seed=seed, publish=(AILING, HEALTHY)) as here:
        here.fleet.start_ready()
        warm = Measured(here)
        warm.start_for(1)
        warm.milliseconds()
        idle = Measured(here)
        idle.start_for(min(lasts, 10), at_least=50)
        quiet = idle.milliseconds()
        here.say(f"idle p95 {_p95(quiet):.0f} ms of {len(quiet)} runs")
        here.keyless.set_faults([Fault("error_before", times=10**9)])
        storm = _Storm(here, count)
        others = Measured(here)
        storm.begin()
        others.start_for(lasts, at_least=50)
        storm.join()
        busy = others.milliseconds()
        here.say(f"storm p95 {_p95(busy):.0f} ms of {len(busy)} runs")
        burnt = _attempts(storm.runs)
        waiting = _waiting(storm.runs)
        here.keyless.set_faults([])
        healed = time.monotonic()
        yield _apart(quiet, busy, EXTRA_MS[size])
        yield _parked(storm.runs, waiting, burnt)
        yield _ended(here, storm.runs, healed)


class _Storm:
    """All the runs of the ailing service, started as fast as it goes, beside the measuring."""

    def __init__(self, here: Scene, count: int) -> None:
        self.here, self.count = here, count
        self.runs: list[UUID] = []
        self._thread = threading.Thread(target=self._start)

    def begin(self) -> None:
        """Go."""
        self._thread.start()

    def join(self) -> None:
        """Return when all are started."""
        self._thread.join()

    def _start(self) -> None:
        try:
            for number in range(self.count):
                self.runs.append(self.here.place.start(AILING, value=number))
        finally:
            connections.close_all()


def _p95(ordered: Sequence[float]) -> float:
    return ordered[min(len(ordered) - 1, round(len(ordered) * 0.95))]


def _attempts(runs: Sequence[UUID]) -> int:
    ((count,),) = ask(
        "SELECT coalesce(sum(attempt), 0) FROM orchestrator_step"
        " WHERE key = 'call' AND run_id = ANY(%s)",
        list(runs),
    )
    return int(count)


def _waiting(runs: Sequence[UUID]) -> int:
    ((count,),) = ask(
        "SELECT count(*) FROM orchestrator_run WHERE id = ANY(%s) AND state = 'waiting'"
        " AND waiting_for = 'service'",
        list(runs),
    )
    return int(count)


def _apart(quiet: Sequence[float], busy: Sequence[float], extra_ms: float) -> Line:
    idle, stormy = _p95(quiet), _p95(busy)
    broken = []
    if stormy > idle + extra_ms:
        broken.append(f"p95 went from {idle:.0f} ms to {stormy:.0f} ms")
    figures: dict[str, int | float | str] = {
        "idle p95 ms": round(idle, 1),
        "storm p95 ms": round(stormy, 1),
        "storm p50 ms": round(busy[len(busy) // 2], 1),
    }
    words = f"others' p95 stays within idle + {extra_ms:.0f} ms while a service answers 503"
    return Line("3.7", words, len(busy), figures, broken)


def _parked(runs: Sequence[UUID], waiting: int, burnt: int) -> Line:
    # Five failures open it; what is under way meanwhile, and one probe a look, come on top.
    most = 60 + len(runs) // 20
    broken = [] if burnt <= most else [f"{burnt} attempts were burnt, at most {most} were allowed"]
    if waiting < len(runs) * 0.9:
        broken.append(f"only {waiting} of {len(runs)} runs wait for the service")
    figures: dict[str, int | float | str] = {"waiting": waiting, "attempts burnt": burnt}
    return Line(
        "4.7",
        "while the breaker is open steps wait and burn no attempt",
        len(runs),
        figures,
        broken,
    )


def _ended(here: Scene, runs: Sequence[UUID], healed: float) -> Line:
    broken: list[str] = []
    try:
        here.place.await_end(runs, 240)
    except AssertionError as error:
        broken.append(f"not all ended: {str(error)[:300]}")
    took = time.monotonic() - healed
    states = dict(
        ask(
            "SELECT state, count(*) FROM orchestrator_run WHERE id = ANY(%s) GROUP BY 1",
            list(runs),
        )
    )
    if states != {"completed": len(runs)}:
        broken.append(f"they ended as {states}")
    books = here.applied("order")
    once = sum(1 for n in books.values() if n == 1)
    if once != len(runs):
        broken.append(f"{once} of {len(runs)} affairs stand once in the provider's book")
    broken += here.doubled() + here.faults()
    figures: dict[str, int | float | str] = {
        "s after healing": round(took, 1),
        "attempts in all": _attempts(runs),
    }
    return Line(
        "4.7",
        "when the service is well again all of them end, each effect once",
        len(runs),
        figures,
        broken,
    )
