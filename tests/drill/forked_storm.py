"""A storm over effects: forked workers and callers, killed all the time, and the providers' books.

Forked from one warm process, so that a death costs milliseconds: thousands of kills where whole
processes allow dozens. Workers run the real engine without a broker: the READY sweep is their
queue, so that nothing but PostgreSQL holds the work.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection, connections
from django.db.models import Q, QuerySet

from orchestrator import engine
from orchestrator.conf import engine_settings
from orchestrator.engine import recovery
from orchestrator.engine.replaying import replay_runs
from orchestrator.models import Effect, Run, Step
from orchestrator.models.run import OPEN_STATES
from orchestrator.ops.invariants import check_runs
from tests.drill.app import tools  # noqa: F401 - registers them
from tests.drill.arena import Arena, arena
from tests.drill.forking import Child, ChildFailed, Died, fork
from tests.drill.life import CALLER, TENANT
from tests.drill.line import Line, Size
from tests.drill.providers import Fault, Provider, providers
from tests.drill.scenarios import call, fails
from tests.engine import probes  # noqa: F401 - registers them
from tests.engine.carrier import Carrier
from workflows_app.errors import KeyInFlight
from workflows_app.models import Tenant
from workflows_app.publishing import JSON, publish
from workflows_app.triggering import start

LEASE_S = 2.0
STALE_S = 0.5
AT_A_TIME = 10
SWEEPS = 0.15
PATIENCE_S = 120.0
FLAGGED_S = 60.0
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
    """How many starts, kills and restarts of PostgreSQL, so many seconds from kill to kill."""

    starts: int
    kills: int
    restarts: int
    every_s: float
    workers: int = 3


WEATHER = {
    Size.QUICK: Weather(starts=150, kills=60, restarts=1, every_s=0.06),
    Size.SHORT: Weather(starts=1_000, kills=250, restarts=4, every_s=0.1),
    Size.LONG: Weather(starts=20_000, kills=2_000, restarts=50, every_s=0.2),
}


def forked_storm(size: Size, seed: int) -> Iterator[Line]:
    """Kill workers and callers until the kills are done, let all come to rest, and compare."""
    weather = WEATHER[size]
    with arena(durable=True) as here, providers(seed) as (keyed, keyless):
        _publish()
        storm = Storm(weather, seed, keyed, keyless, here)
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


def _moods(*operations: str) -> list[Fault]:
    """A provider on a bad day. What may be sent again is also refused now and then."""
    always = 1 << 30
    refused = [
        Fault("error_before", operation=name, chance=0.02, times=always) for name in operations
    ]
    return [
        *refused,
        Fault("cut_before", chance=0.005, times=always),
        Fault("error_after", chance=0.01, times=always),
        Fault("cut_after", chance=0.005, times=always),
        Fault("half_body", chance=0.005, times=always),
        Fault("slow", chance=0.01, times=always, delay_ms=50),
        Fault("no_answer", chance=0.002, times=always),
    ]


def _work(seed: float) -> None:
    """A worker without a broker: what is READY, a few at a time; now and then every sweep."""
    chance, carrier = random.Random(seed), Carrier()
    engine.set_dispatcher(carrier)
    while True:
        try:
            if chance.random() < SWEEPS:
                engine.beat_once()
            else:
                recovery.redispatch_stale(AT_A_TIME)
            if not carrier.messages:
                time.sleep(0.03)
            carrier.run_all()
        except (DatabaseError, InterfaceError):
            connection.close()
            carrier.messages.clear()
            time.sleep(0.1)


def _call_in(orders: Sequence[tuple[str, str]], log: Path) -> None:
    """A caller, who starts what nobody was told of yet, by its key, and notes what he is told."""
    engine.set_dispatcher(Carrier())
    told = acknowledged(log)
    with log.open("ab", buffering=0) as notes:
        for reference, name in orders:
            if reference in told:
                continue
            run_id = _started(name, reference)
            notes.write(f"{reference} {run_id}\n".encode())


def _started(name: str, reference: str) -> UUID:
    while True:
        try:
            body = {"input": {"reference": reference}}
            return start(CALLER, name, body, key=reference).run_id
        except (DatabaseError, InterfaceError):  # 503
            connection.close()
        except KeyInFlight:  # 409
            pass
        time.sleep(0.05)


def acknowledged(log: Path) -> dict[str, UUID]:
    """What a caller was told, by reference: the storm's own record of it."""
    pairs = (line.split() for line in log.read_text().splitlines())
    return {reference: UUID(run_id) for reference, run_id in pairs}


@dataclass
class Storm:
    """One storm, from its first start to its last look."""

    weather: Weather
    seed: int
    keyed: Provider
    keyless: Provider
    here: Arena
    hands: dict[Child, str] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    by_hand: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.began = time.monotonic()
        names = list(SHAPES)
        chosen = [names[n % len(names)] for n in range(self.weather.starts)]
        self.orders = [(f"{name}-{n}", name) for n, name in enumerate(chosen)]
        self.log = Path(tempfile.mkdtemp(prefix="storm-")) / "acknowledged"
        self.log.touch()
        lease = {"LEASE_SECONDS": LEASE_S, "RENEW_SECONDS": LEASE_S / 3, "STALE_SECONDS": STALE_S}
        settings.ORCHESTRATOR = {**settings.ORCHESTRATOR, **lease}
        engine_settings.cache_clear()

    # -- while it blows ------------------------------------------------------------------------

    def blow(self) -> None:
        """Start, work and die, until all runs are started and all kills done."""
        self.keyed.set_faults(_moods("charge", "refund"))
        self.keyless.set_faults(_moods("order", "unorder"))
        wanted, kills = self.weather.restarts, self.weather.kills
        restarts = {(n + 1) * kills // (wanted + 1) for n in range(wanted)}
        while self.done["kills"] < kills or not self._all_started():
            self._man(caller=True)
            time.sleep(self.random.uniform(0.5, 1.5) * self.weather.every_s)
            self._kill_somebody()
            if self.done["kills"] in restarts:
                restarts.discard(self.done["kills"])
                connections.close_all()
                self.here.restart()
                self.done["restarts"] += 1
            if self.done["kills"] % 50 == 0:
                self._say()
        self.done["seconds of storm"] = round(time.monotonic() - self.began)

    def _man(self, *, caller: bool) -> None:
        """As many hands as there should be."""
        working = sum(kind == "worker" for kind in self.hands.values())
        for _ in range(self.weather.workers - working):
            self.hands[fork(partial(_work, self.random.random()))] = "worker"
        if caller and "caller" not in self.hands.values() and not self._all_started():
            self.hands[fork(partial(_call_in, self.orders, self.log))] = "caller"

    def _kill_somebody(self) -> None:
        for hand in [each for each in self.hands if each.ended()]:
            self._bury(hand, killed=False)
        if self.hands:
            hand = self.random.choice(list(self.hands))
            hand.kill()
            self.done["kills"] += 1
            self.done[f"{self.hands[hand]}s killed"] += 1
            self._bury(hand, killed=True)

    def _bury(self, hand: Child, *, killed: bool) -> None:
        kind = self.hands.pop(hand)
        try:
            hand.result()
        except (Died, ChildFailed, ValueError) as error:
            if not killed:
                self.broken.append(f"a {kind} ended by itself: {str(error)[-600:]}")

    def _all_started(self) -> bool:
        return self.log.read_bytes().count(b"\n") >= len(self.orders)

    def _say(self) -> None:
        words = f"{dict(self.done)}; {self._open()} open"
        print(f"{time.monotonic() - self.began:7.1f} s  {words}", file=sys.stderr, flush=True)

    # -- afterwards ----------------------------------------------------------------------------

    def calm_down(self) -> None:
        """No more kills, and providers as on a good day, until all is at rest; then a person
        settles what nobody can tell, and all comes to its end."""
        self.keyed.set_faults([])
        self.keyless.set_faults([])
        self._rest()
        self.done["unknown"] = _in_review().count()
        self._settle_by_hand()
        self._rest()
        self.done["seconds"] = round(time.monotonic() - self.began)

    def _rest(self) -> None:
        """Until nothing is open but what waits for a person."""
        moved_at, before = time.monotonic(), -1
        while (left := self._open()) > 0:
            self._man(caller=False)
            time.sleep(0.3)
            if left != before:
                moved_at, before = time.monotonic(), left
            if time.monotonic() - moved_at > PATIENCE_S:
                self.broken.append(f"{left} runs go nowhere")
                return

    def _open(self) -> int:
        waits = Q(state="waiting", waiting_for="review")
        return Run.objects.filter(state__in=OPEN_STATES).exclude(waits).count()

    def _settle_by_hand(self) -> None:
        """A person looks into the provider's book for each effect in doubt."""
        engine.set_dispatcher(Carrier())
        for effect in _in_review().select_related("step"):
            operation, _, reference = effect.idempotency_key.partition(":")
            entries = self.keyless.entries(operation, reference)
            details: dict[str, Any] = {"effect_key": effect.idempotency_key}
            if entries:
                answer = entries[0]["answer"]
                details |= {"outcome": "applied", "output": answer}
                details |= {"external_ref": answer["external_ref"]}
            else:
                details |= {"outcome": "not_applied"}
                self.by_hand[reference] += 1
            engine.repair_run(
                effect.run_id,
                action="settle_effect",
                reason="looked into the provider's book",
                actor="user:operator",
                token=f"settle {effect.pk}",
                details=details,
            )

    def end(self) -> None:
        """Nobody is left."""
        for hand in list(self.hands):
            hand.kill()
            self._bury(hand, killed=True)
        connections.close_all()

    # -- what came of it -----------------------------------------------------------------------

    def lines(self) -> Iterator[Line]:
        """The promises, one by one."""
        figures = {name: self.done[name] for name in ("kills", "restarts", "seconds")}
        told = acknowledged(self.log)
        yield Line("P1 P5", "starts acknowledged under kills are there and ended as they must",
                   len(told), figures, self.broken + self._lost(told))  # fmt: skip
        effects = self.keyed.listing() + self.keyless.listing()
        wrong = self._wrong_books(effects)
        rate = round(len(effects) / max(1, self.done["seconds"]))
        yield Line("P2", "each effect stands in the provider's book once and only once",
                   len(effects), {"effects/s": rate, "wrong": len(wrong)}, wrong[:20])  # fmt: skip
        yield self._unknowns(told)
        yield self._sound(list(told.values()))

    def _lost(self, told: dict[str, UUID]) -> list[str]:
        stored = dict(Run.objects.filter(tenant=TENANT).values_list("id", "state"))
        names = dict(self.orders)
        found = [f"{len(stored)} runs for {len(names)} keys"] if len(stored) != len(names) else []
        for reference, run_id in told.items():
            state = stored.get(run_id, "lost")
            if state != OVER[names[reference]]:
                found.append(f"{reference} {run_id} is {state}")
        return found[:20]

    def _wrong_books(self, effects: Sequence[Mapping[str, Any]]) -> list[str]:
        books: dict[str, Counter[str]] = defaultdict(Counter)
        for entry in effects:
            books[entry["reference"]][entry["operation"]] += 1
        return [
            f"{reference}: {dict(books[reference])}, not {BOOKS[name]}"
            for reference, name in self.orders
            if books[reference] != BOOKS[name]
        ]

    def _unknowns(self, told: Mapping[str, UUID]) -> Line:
        """A provider that can be asked nothing hears of each affair once, or as a person says."""
        calls = self.keyless.calls("send")
        again = [
            f"{reference} was sent {n} times, a person allowed {1 + self.by_hand[reference]}"
            for reference, n in calls.items()
            if n > 1 + self.by_hand[reference]
        ]
        slowest = _slowest_flag()
        if slowest > FLAGGED_S:
            again.append(f"an unknown was flagged after {slowest:.0f} s")
        figures = {"unknown": self.done["unknown"], "not applied": sum(self.by_hand.values())}
        figures |= {"slowest flag s": round(slowest)}
        words = "keyless provider: nothing is sent again by itself, each unknown is flagged"
        return Line("P2", words, len(calls), figures, again[:20])

    def _sound(self, run_ids: Sequence[UUID]) -> Line:
        broken = [
            f"{v.rule}: {v.run_id} {v.step} {v.words}"
            for finding in check_runs(run_ids)
            for v in finding.violations
        ]
        identical = 0
        for replayed in replay_runs(run_ids):
            identical += replayed.identical
            if not replayed.identical:
                broken.append(f"replay of {replayed.run_id}: {replayed.difference}")
        words = "invariants hold, and every history leads to where its run stands"
        return Line("P11", words, len(run_ids), {"identical": identical}, broken[:20])


def _in_review() -> QuerySet[Effect]:
    waiting = Step.objects.filter(state="waiting", waiting_for="review")
    return Effect.objects.filter(step__in=waiting, status__in=("intended", "in_doubt"))


def _slowest_flag() -> float:
    """From the last intent to the doubt that a person sees, at worst; seconds."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT coalesce(max(extract(epoch FROM d.at - s.at)), 0) FROM orchestrator_event d"
            " JOIN LATERAL (SELECT at FROM orchestrator_event i WHERE i.run_id = d.run_id"
            "   AND i.step = d.step AND i.type = 'step.started' AND i.seq < d.seq"
            "   ORDER BY i.seq DESC LIMIT 1) s ON true"
            " WHERE d.type = 'effect.in_doubt' AND d.step = 'send'"
        )
        return float(cursor.fetchone()[0])
