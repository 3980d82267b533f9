"""Workers that are cut off from PostgreSQL, or from the broker, in the middle of an effect."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from urllib.parse import urlsplit
from uuid import UUID

from orchestrator.models import Run
from tests.chaos.processes import Process
from tests.drill.line import Line, Size
from tests.drill.proxy import Proxy
from tests.drill.scene import Scene, effect_shape, scene, spread

GRACE_S = 5.0
PAY = effect_shape("pay_far_away", "chaos.pay_slowly", "charge", "tool", "agent", "tool")
ORDER = effect_shape("order_far_away", "chaos.order_slowly", "order", "tool", "agent", "tool")


@dataclass
class Wire:
    """A way to a server, which is stalled (half open, nothing travels) or refused (reset)."""

    name: str
    proxy: Proxy
    how: dict[str, str]
    refuses: bool

    def cut(self) -> None:
        """From now on nothing passes."""
        if self.refuses:
            self.proxy.refuse()
        else:
            self.proxy.stall()


def cut_off(size: Size, seed: int) -> Iterator[Line]:
    """For three leases: first with others who take over, then with nobody else."""
    lease = 15.0 if size is Size.LONG else 5.0
    waves = 4 if size is Size.LONG else 1
    with scene(lease_s=lease, seed=seed, publish=(PAY, ORDER)) as here, ExitStack() as open_wires:
        wires = [open_wires.enter_context(wire.proxy) and wire for wire in _wires(here)]
        cut = Cut(here, wires, lease)
        here.fleet.start_ready(("pulse", "worker-engine", "worker-agent"))
        cut.start_workers()
        for wave in range(waves):
            cut.with_others(wave * 1000)
            cut.alone(wave * 1000 + 500)
        exits = [worker.name for worker in cut.workers if not worker.alive]
        yield Line(
            "P6", "a worker cut off for three leases in mid-effect: work goes on after the heal",
            len(cut.alone_runs), spread(cut.healed_s, "s"), cut.late + cut.unfinished,
        )  # fmt: skip
        yield Line(
            "P2 P6", "what was under way behind a cut stands once in the provider's book",
            len(cut.runs), {"worker exits": len(exits), "wires": len(wires)},
            cut.book() + [f"{name} ended" for name in exits],
        )  # fmt: skip


def _wires(here: Scene) -> list[Wire]:
    urls = here.world.urls
    broker = urlsplit(urls["BROKER_URL"])
    found: list[Wire] = []
    for refuses in (False, True):
        proxy = Proxy(str(here.world.postgres_socket))
        how = {"database_url": proxy.url("orchestrator")}
        found.append(Wire("PostgreSQL", proxy, how, refuses))
        proxy = Proxy(("127.0.0.1", broker.port or 0))
        there = broker._replace(netloc=f":{broker.password}@127.0.0.1:{proxy.port}")
        found.append(Wire("broker", proxy, {"broker_url": there.geturl()}, refuses))
    return found


class Cut:
    """One worker behind each wire, and what became of the runs that they held."""

    def __init__(self, here: Scene, wires: list[Wire], lease: float) -> None:
        self.here, self.place, self.wires, self.lease = here, here.place, wires, lease
        self.workers: list[Process] = []
        self.runs: dict[UUID, str] = {}
        self.alone_runs: list[UUID] = []
        self.healed_s: list[float] = []
        self.late: list[str] = []
        self.unfinished: list[str] = []

    def start_workers(self) -> None:
        """They consume, each through its own wire."""
        self.workers = [self.here.fleet.start("worker-tool", **wire.how) for wire in self.wires]
        self.here.fleet.await_ready(self.workers)

    def with_others(self, first: int) -> None:
        """While they are cut off another worker takes over what PostgreSQL has taken from them."""
        runs = self._hold(first)
        spare = self.here.fleet.start("worker-tool")
        self._cut_for_three_leases([spare])
        self._heal()
        self._await(runs)
        self.here.fleet.stop_one(spare)

    def alone(self, first: int) -> None:
        """Nobody else takes tools: the work goes on when the wires are whole again."""
        runs = self._hold(first)
        self._cut_for_three_leases([])
        open_before = {run.pk for run in self.place.open(runs)}
        healed_at = self._heal()
        self._await(runs)
        self.alone_runs += runs
        for run in Run.objects.filter(pk__in=open_before, finished_at__isnull=False):
            assert run.finished_at is not None
            seconds = run.finished_at.timestamp() - healed_at
            self.healed_s.append(seconds)
            if seconds > self.lease + GRACE_S:
                self.late.append(f"{run.pk} ended {seconds:.1f} s after the heal")

    def _hold(self, first: int) -> list[UUID]:
        """Each place of each worker is in mid-effect; the body ends during the cut."""
        hold = round(self.lease * 1000)
        runs: list[UUID] = []
        for number in range(first, first + 2 * len(self.workers)):
            shape, operation = ((PAY, "charge"), (ORDER, "order"))[number // 2 % 2]
            run = self.place.start(shape, value=number, sleep_ms=hold)
            runs.append(run)
            self.runs[run] = f"{operation}-{number}"
        wanted = {self.runs[run] for run in runs}
        self.here.fleet.until(lambda: wanted <= self._applied().keys(), 30)
        return runs

    def _applied(self) -> dict[str, int]:
        return self.here.applied("charge") | self.here.applied("order")

    def _cut_for_three_leases(self, beside: list[Process]) -> None:
        for wire in self.wires:
            wire.cut()
        self.here.say(f"{len(self.wires)} workers are cut off")
        self.here.fleet.await_ready(beside)
        until = time.monotonic() + 3 * self.lease
        while time.monotonic() < until:
            self.here.fleet.listen(0.2)

    def _heal(self) -> float:
        for wire in self.wires:
            wire.proxy.heal()
        self.here.say("healed")
        return time.time()

    def _await(self, runs: list[UUID]) -> None:
        try:
            self.place.await_end(runs, self.lease * 2 + GRACE_S * 2)
        except AssertionError as error:
            self.unfinished.append(str(error))

    def book(self) -> list[str]:
        """What does not stand exactly once in the provider's book."""
        applied, again = self._applied(), self.here.keyless.calls("order")
        broken = self.here.doubled() + self.here.faults()
        for reference in self.runs.values():
            if applied.get(reference) != 1:
                broken.append(f"{reference} stands {applied.get(reference, 0)} times")
            if again.get(reference, 1) != 1:
                broken.append(f"{reference} was sent again to a provider that knows no keys")
        return broken
