"""A storm over effects: forked workers and callers, killed all the time, and the providers' books.

Forked from one warm process, so that a death costs milliseconds: thousands of kills where whole
processes allow dozens. Workers run the real engine without a broker: the READY sweep is their
queue, so that nothing but PostgreSQL holds the work.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import orjson
from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection, connections

from config import embedded
from orchestrator import engine
from orchestrator.conf import engine_settings
from orchestrator.core.errors import OrchestratorError
from orchestrator.engine import recovery
from orchestrator.engine.replaying import replay_runs
from orchestrator.models import Effect, Run, Step
from orchestrator.models.run import OPEN_STATES
from orchestrator.ops.invariants import check_runs
from tests.drill.app import tools  # noqa: F401 - registers them
from tests.drill.arena import arena
from tests.drill.forking import Child, fork
from tests.drill.life import CALLER, TENANT
from tests.drill.line import Line, Size, minutes
from tests.drill.providers import Fault, Provider, providers
from tests.drill.scenarios import call, fails
from tests.engine import probes  # noqa: F401 - registers them
from tests.engine.carrier import Carrier
from workflows_app.errors import KeyInFlight
from workflows_app.models import Tenant
from workflows_app.publishing import JSON, publish
from workflows_app.triggering import start

LEASE_S = 2.0
STALE_S = 1.0
AT_A_TIME = 10
PATIENCE_S = 240.0
RETRY = {"max_retries": 12, "base_delay": "200ms", "max_delay": "1s"}
SHAPES: dict[str, dict[str, Any]] = {
    "buy": {
        "pay": call("pay"),
        "order": call("order", needs=["pay"]),
        "send": call("send", needs=["order"]),
    },
    "undone": {
        "pay": call("pay", undo="repay"),
        "order": call("order", undo="unorder", needs=["pay"]),
        "refused": fails(needs=["order"]),
    },
    "both": {"pay": call("pay"), "order": call("order")},
}
OVER = {"buy": "completed", "both": "completed", "undone": "failed"}
BOOKS = {
    "buy": {"charge": 1, "order": 1, "send": 1},
    "both": {"charge": 1, "order": 1},
    "undone": {"charge": 1, "order": 1, "refund": 1, "unorder": 1},
}


@dataclass(frozen=True)
class Weather:
    """How many starts, kills, and restarts of PostgreSQL (0: none); and how many hands."""

    starts: int
    kills: int
    restarts: int = 0
    workers: int = 3
    callers: int = 1


WEATHER = {
    Size.QUICK: Weather(starts=150, kills=60),
    Size.SHORT: Weather(starts=1200, kills=300, restarts=2),
    Size.LONG: Weather(starts=20_000, kills=2_000, restarts=50),
}


def forked_storm(size: Size, seed: int) -> Iterator[Line]:
    """Kill workers and callers until the kills are done, let all come to rest, and compare."""
    weather = WEATHER[size]
    with arena(durable=True) as cluster, providers(seed) as (keyed, keyless):
        _publish()
        storm = Storm(weather, seed, keyed, keyless, cluster)
        try:
            storm.blow()
            storm.calm_down()
        finally:
            storm.end()
        yield from storm.lines()


def _publish() -> None:
    Tenant.ensure(TENANT)
    for name, steps in SHAPES.items():
        document = {
            "schema": "orchestrator/v1",
            "name": name,
            "input": {"type": "object", "required": ["reference"]},
            "timeout": "12h",
            "defaults": {"timeout": "30s", "retry": RETRY},
            "steps": steps,
        }
        document["input"]["properties"] = {"reference": {"type": "string"}}  # type: ignore[index]
        publish(TENANT, orjson.dumps(document), JSON, actor="user:drill")


def _moods() -> list[Fault]:
    """Providers as they are on a bad day."""
    for_ever = 1 << 30
    return [
        Fault("error_before", chance=0.02, times=for_ever),
        Fault("cut_before", chance=0.005, times=for_ever),
        Fault("error_after", chance=0.01, times=for_ever),
        Fault("cut_after", chance=0.005, times=for_ever),
        Fault("half_body", chance=0.005, times=for_ever),
        Fault("slow", chance=0.01, times=for_ever, delay_ms=50),
        Fault("no_answer", chance=0.002, times=for_ever),
    ]


@dataclass
class Storm:
    """One storm, from its first start to its last look."""

    weather: Weather
    seed: int
    keyed: Provider
    keyless: Provider
    cluster: embedded.Cluster
    hands: dict[Child, str] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        names = list(SHAPES)
        self.orders = [
            (f"{names[n % len(names)]}-{n}", names[n % len(names)])
            for n in range(self.weather.starts)
        ]
        self.log = Path(os.environ.get("TMPDIR", "/tmp")) / f"acknowledged-{uuid4().hex}"  # noqa: S108
        self.log.touch()
        settings.ORCHESTRATOR = {
            **settings.ORCHESTRATOR,
            "LEASE_SECONDS": LEASE_S,
            "RENEW_SECONDS": LEASE_S / 3,
            "STALE_SECONDS": STALE_S,
        }
        engine_settings.cache_clear()

    # -- while it blows ------------------------------------------------------------------------

    def blow(self) -> None:
        """Start, work and die, until all runs are started and all kills done."""
        self.keyed.set_faults(_moods())
        self.keyless.set_faults(_moods())
        began = time.monotonic()
        restarts = self._restarts()
        while not (self._all_started() and self.done["kills"] >= self.weather.kills):
            self._man()
            time.sleep(self.random.uniform(0.01, 0.09))  # a kill each 50 ms, about
            self._kill_somebody()
            if self.done["kills"] in restarts:
                restarts.discard(self.done["kills"])
                self._restart_postgres()
            if self.done["kills"] % 100 == 0:
                self._say(began)
        self.done["storm_s"] = round(time.monotonic() - began)

    def _restarts(self) -> set[int]:
        wanted, kills = self.weather.restarts, self.weather.kills
        return {(n + 1) * kills // (wanted + 1) for n in range(wanted)}

    def _man(self) -> None:
        """As many hands as there should be."""
        for kind, wanted in (("worker", self.weather.workers), ("caller", self.weather.callers)):
            if kind == "caller" and self._all_started():
                continue
            while sum(each == kind for each in self.hands.values()) < wanted:
                seed = self.random.random()
                body = partial(_work, seed) if kind == "worker" else partial(_call, self)
                self.hands[_Hashable(fork(body))] = kind

    def _kill_somebody(self) -> None:
        for hand in [each for each in self.hands if each.child.ended()]:
            self._bury(hand)
        if not self.hands:
            return
        hand = self.random.choice(list(self.hands))
        hand.child.kill()
        self.done["kills"] += 1
        self.done[f"{self.hands[hand]}s killed"] += 1
        self._bury(hand, was_killed=True)

    def _bury(self, hand: Any, *, was_killed: bool = False) -> None:
        self.hands.pop(hand)
        try:
            hand.child.result()
        except Exception as error:
            if not was_killed:
                self.broken.append(f"a process ended by itself: {str(error)[-600:]}")

    def _restart_postgres(self) -> None:
        self.cluster_restart()
        self.done["PostgreSQL restarts"] += 1

    def cluster_restart(self) -> None:
        """As by ``pg_ctl restart -m immediate``."""
        connections.close_all()
        pid = int((self.cluster.data / "postmaster.pid").read_text().split("\n", 1)[0])
        os.kill(pid, signal.SIGQUIT)
        raise NotImplementedError

    def _all_started(self) -> bool:
        return len(self.acknowledged()) >= len(self.orders)

    def acknowledged(self) -> dict[str, UUID]:
        """What a caller was told, by reference: the storm's own record of it."""
        lines = self.log.read_bytes().splitlines()
        return {name.decode(): UUID(run.decode()) for name, run in (x.split() for x in lines)}

    def _say(self, began: float) -> None:
        words = f"{dict(self.done)} {len(self.acknowledged())} acknowledged"
        print(f"{time.monotonic() - began:7.1f} s  {words}", file=sys.stderr, flush=True)
