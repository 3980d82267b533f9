"""PostgreSQL away for minutes, and a broker that comes back with nothing, under a running API."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from django.db import connection

from tests.chaos import shapes
from tests.chaos.processes import tail
from tests.drill.caller import Caller, Wish
from tests.drill.line import Line, Size
from tests.drill.scene import BOOTED, Scene, ask, scene

SHAPES = (shapes.CHAIN, shapes.FAN, shapes.LANES, shapes.PARENT, shapes.PAUSE, shapes.ROUNDS)
AWAY_S = {Size.QUICK: 8.0, Size.SHORT: 20.0, Size.LONG: 300.0}
RESUMES_S = 2.0  # RELIABILITY P5: after the server is ready
DRAINED_S = 40.0
CLIENTS = 4


def servers_away(size: Size, seed: int) -> Iterator[Line]:
    """One after the other in one world; the client's own log of answers decides."""
    with scene(lease_s=15, seed=seed, publish=SHAPES) as here:
        here.fleet.start_ready((*BOOTED, "beat"))
        caller = Caller(here)
        rng = random.Random(seed)
        yield from _postgres_away(here, caller, rng, AWAY_S[size])
        yield _broker_wiped(here, caller, rng, 10 if size is Size.LONG else 3)


def _wish_for(caller: Caller, rng: random.Random, count: int, pace_ms: int) -> None:
    for _ in range(count):
        caller.wish(rng.choice(SHAPES), shapes.some_input(rng, pace_ms))


def _postgres_away(
    here: Scene, caller: Caller, rng: random.Random, away_s: float
) -> Iterator[Line]:
    fleet = here.fleet
    before = {process.name for process in fleet.alive()}
    _wish_for(caller, rng, 12, 600)
    known = caller.runs()
    here.world.stop_postgres()
    here.say("PostgreSQL is away")
    asked, reads = _ask_while_away(caller, rng, away_s)
    here.world.start_postgres()
    ready_at = time.time()
    here.say("PostgreSQL is back")
    connection.close()
    resumed = _resumed(here, ready_at)
    caller.ask_until_acknowledged()
    broken = _not_over(here, caller)
    exits = sorted(before - {process.name for process in fleet.alive()})
    answers = [answer for wish in asked for answer in wish.answers[:1]]
    wrong = [f"{status} was answered to a start" for status, _ in answers if status != 503]
    wrong += [f"{status} was answered to a GET" for status in reads if status != 503]
    wrong += ["a 503 came without Retry-After"] * caller.without_retry_after
    yield Line(
        "P5", f"PostgreSQL away for {away_s:.0f} s: each answer is 503 with Retry-After",
        len(answers) + len(reads),
        {"503": len(answers) + len(reads) - len(wrong),
         "slowest answer s": round(max(seconds for _, seconds in answers), 1)},
        wrong,
    )  # fmt: skip
    if resumed > RESUMES_S:
        broken.append(f"work resumed {resumed:.1f} s after PostgreSQL was ready")
    yield Line(
        "P5", "after that work resumes by itself, and every run that was under way ends right",
        len(known) + len(asked),
        {"resumed after s": round(resumed, 2), "process exits": len(exits)},
        broken + caller.wrong() + [f"{name} ended" for name in exits],
    )  # fmt: skip


def _ask_while_away(
    caller: Caller, rng: random.Random, away_s: float
) -> tuple[list[Wish], list[int]]:
    """Four clients at a time, each with one start and one look after the other."""
    asked: list[Wish] = []
    reads: list[int] = []
    until = time.monotonic() + away_s
    known = caller.runs()

    def insist() -> None:
        while time.monotonic() < until:
            asked.append(caller.wish(rng.choice(SHAPES), shapes.some_input(rng, 100)))
            reads.append(caller.http.get(f"/v1/workflows/{rng.choice(known)}").status_code)

    with ThreadPoolExecutor(CLIENTS) as clients:
        for client in [clients.submit(insist) for _ in range(CLIENTS)]:
            client.result()
    return asked, reads


def _resumed(here: Scene, ready_at: float) -> float:
    """Seconds from the server's first answer to the next step that is begun or done."""
    found: list[float] = []

    def moved() -> bool:
        found[:] = [
            float(row[0])
            for row in ask(
                "SELECT extract(epoch FROM min(at))::float8 FROM orchestrator_event"
                " WHERE at > to_timestamp(%s) AND type IN ('step.started', 'step.completed')"
                " HAVING min(at) IS NOT NULL",
                ready_at,
            )
        ]
        return bool(found)

    here.fleet.until(moved, 30, lambda: tail(here.fleet.logs))
    return found[0] - ready_at


def _not_over(here: Scene, caller: Caller) -> list[str]:
    try:
        here.place.await_end(caller.runs(), DRAINED_S)
    except AssertionError as error:
        return [str(error)]
    return here.faults()


def _broker_wiped(here: Scene, caller: Caller, rng: random.Random, times: int) -> Line:
    """Killed with its data gone while starts go on."""
    first = len(caller.wishes)
    worst = 0.0
    before = {process.name for process in here.fleet.alive()}
    for _ in range(times):
        _wish_for(caller, rng, 6, 300)
        here.world.wipe_broker()
        here.say("the broker is away, and its data gone")
        _wish_for(caller, rng, 6, 100)
        here.world.start_broker()
        _wish_for(caller, rng, 3, 100)
    wishes = caller.wishes[first:]
    refused = [
        f"{wish.key} was answered {status}"
        for wish in wishes
        for status, _ in wish.answers
        if status != 201
    ]
    worst = max(seconds for wish in wishes for _, seconds in wish.answers)
    caller.ask_until_acknowledged()
    broken = refused + _not_over(here, caller) + caller.wrong()
    exits = sorted(before - {process.name for process in here.fleet.alive()})
    return Line(
        "P1 P4", "the broker is killed and wiped while starts go on: each is 201, and ends",
        len(wishes),
        {"wipes": times, "slowest start s": round(worst, 2), "process exits": len(exits)},
        broken + [f"{name} ended" for name in exits],
    )  # fmt: skip
