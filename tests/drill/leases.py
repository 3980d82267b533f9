"""Workers that die, and workers that stand still past their lease and wake up again."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

import psutil

from orchestrator.models import Run
from tests.chaos.processes import Process, tail
from tests.drill.line import Line, Size
from tests.drill.scene import Scene, ask, effect_shape, history, scene, spread

LEASE_S = 15.0  # the default
GRACE_S = 5.0  # the promise: taken over within lease + 5 s
SLOTS = 2
PAY = effect_shape("pay_slowly", "chaos.pay_slowly", "charge", "tool")
ORDER = effect_shape("order_slowly", "chaos.order_slowly", "order", "tool")
HELD_MS = 120_000  # longer than the drill: who holds it will not finish it
STOPPED_MS = 8_000  # over while its worker stands still


@dataclass
class Held:
    """A run whose first attempt is in its body, in one of these workers."""

    run: UUID
    reference: str
    worker: Process
    hurt_at: float = 0.0


def taken_over(size: Size, seed: int) -> Iterator[Line]:
    """Kill workers and stop others in mid-effect; history and providers tell the rest."""
    waves = 8 if size is Size.LONG else 1
    killed: list[Held] = []
    stopped: list[Held] = []
    broken: list[str] = []
    with scene(lease_s=LEASE_S, seed=seed, publish=(PAY, ORDER)) as here:
        here.fleet.start_ready(("pulse", "worker-engine"))
        for wave in range(waves):
            dead, still = _wave(here, wave, broken)
            killed += dead
            stopped += still
        calls = here.keyed.calls("charge"), here.keyless.calls("order")
        yield _recovery(killed, broken)
        yield _zombies(stopped)
        yield _books(here, killed + stopped, calls)


def _wave(here: Scene, wave: int, broken: list[str]) -> tuple[list[Held], list[Held]]:
    """Six workers are killed, three stopped, with two bodies each."""
    doomed = [here.fleet.start("worker-tool") for _ in range(6)]
    here.fleet.await_ready(doomed)
    dead = _fill(here, doomed, wave * 1000, HELD_MS)
    sleepers = [here.fleet.start("worker-tool") for _ in range(3)]
    here.fleet.await_ready(sleepers)
    still = _fill(here, sleepers, wave * 1000 + 500, STOPPED_MS)
    for worker in sleepers:
        _signal_family(worker, signal.SIGSTOP)
        _mark(still, worker)
    spare = [here.fleet.start("worker-tool") for _ in range(2)]
    here.fleet.await_ready(spare)
    here.say(f"wave {wave}: all in mid-effect; {len(sleepers)} workers stand still")
    for worker in doomed:
        _mark(dead, worker)
        here.fleet.kill(worker)
        here.fleet.listen(0.8)  # at another point of the next one's renewals
    _await(here, dead + still, broken)
    here.say("all were taken over")
    for worker in sleepers:
        _signal_family(worker, signal.SIGCONT)
    _await_evidence(here, still, broken)
    here.fleet.stop("worker-tool")
    return dead, still


def _fill(here: Scene, workers: list[Process], first: int, hold_ms: int) -> list[Held]:
    """Every place of these workers holds a body; nobody else takes tools at the moment."""
    count = len(workers) * SLOTS
    found: list[Held] = []
    for number in range(first, first + count):
        shape, operation = ((PAY, "charge"), (ORDER, "order"))[number % 2]
        run = here.place.start(shape, value=number, sleep_ms=hold_ms)
        found.append(Held(run, f"{operation}-{number}", workers[0]))
    here.fleet.until(lambda: all(h.reference in _applied(here) for h in found), 60)
    by_pid = {child.pid: worker for worker in workers for child in worker.pool()}
    for held in found:
        ((pid,),) = ask("SELECT pid FROM chaos_ledger WHERE run = %s", held.run)
        held.worker = by_pid[pid]
    return found


def _applied(here: Scene) -> set[str]:
    return {entry["reference"] for entry in here.keyed.listing() + here.keyless.listing()}


def _mark(found: list[Held], worker: Process) -> None:
    now = time.time()
    for held in found:
        if held.worker is worker:
            held.hurt_at = now


def _signal_family(worker: Process, number: signal.Signals) -> None:
    for child in worker.pool():
        with suppress(psutil.NoSuchProcess):
            child.send_signal(number)
    worker.signal(number)


def _await(here: Scene, found: list[Held], broken: list[str]) -> None:
    runs = [held.run for held in found]
    try:
        here.place.await_end(runs, LEASE_S * 3 + GRACE_S)
    except AssertionError as error:
        broken.append(f"not over within three leases: {error}")


def _await_evidence(here: Scene, still: list[Held], broken: list[str]) -> None:
    """Those who woke up have brought their results, which nobody wants any more."""
    runs = [held.run for held in still]
    try:
        here.fleet.until(lambda: _late(runs) >= len(still), 20, lambda: tail(here.fleet.logs))
    except AssertionError:
        broken.append(f"{_late(runs)} of {len(still)} late results are kept as evidence")


def _late(runs: list[UUID]) -> int:
    ((count,),) = ask(
        "SELECT count(*) FROM orchestrator_attempt a JOIN orchestrator_step s ON s.id = a.step_id"
        " WHERE a.outcome = 'late' AND s.run_id = ANY(%s)",
        runs,
    )
    return int(count)


def _recovery(killed: list[Held], broken: list[str]) -> Line:
    """From the kill to the next thing that history says of the step."""
    waits: list[float] = []
    for held in killed:
        later = [
            at
            for kind, step, at in history(held.run)
            if at > held.hurt_at and step == "act" and kind in ("step.started", "step.completed")
        ]
        if not later:
            broken.append(f"{held.run}: nobody took its step over")
            continue
        waits.append(later[0] - held.hurt_at)
        if waits[-1] > LEASE_S + GRACE_S:
            broken.append(f"{held.run}: taken over {waits[-1]:.1f} s after the kill")
    return Line(
        "P3", "a killed worker's step is taken over within its lease of 15 s + 5 s", len(killed),
        spread(waits), broken,
    )  # fmt: skip


def _zombies(stopped: list[Held]) -> Line:
    broken: list[str] = []
    early = 0
    for held in stopped:
        told = history(held.run)
        again = [at for kind, step, at in told if kind == "step.started" and step == "act"][1:]
        if again and again[0] - held.hurt_at < LEASE_S * 2 / 3 - 1:
            early += 1
            broken.append(f"{held.run}: taken over {again[0] - held.hurt_at:.1f} s after the stop")
        completed = [step for kind, step, _ in told if kind == "step.completed" and step == "act"]
        if len(completed) != 1:
            broken.append(f"{held.run}: its step completed {len(completed)} times")
    late = _late([held.run for held in stopped])
    if late != len(stopped):
        broken.append(f"{late} late results for {len(stopped)} workers' bodies that woke up")
    return Line(
        "P3", "a worker stopped past its lease wakes up: its result is refused, and evidence",
        len(stopped), {"late results kept": late, "taken over too early": early}, broken,
    )  # fmt: skip


def _books(here: Scene, found: list[Held], calls: tuple[dict[str, int], dict[str, int]]) -> Line:
    """Once in the provider's book, whoever called how often; the keyless one is called once."""
    broken = here.doubled() + here.faults()
    applied = here.applied("charge") | here.applied("order")
    for held in found:
        if applied.get(held.reference) != 1:
            broken.append(f"{held.reference} stands {applied.get(held.reference, 0)} times")
        if calls[1].get(held.reference, 1) != 1:
            broken.append(f"{held.reference} was sent again to a provider that knows no keys")
        if (state := Run.objects.get(pk=held.run).state) != "completed":
            broken.append(f"{held.reference}: its run is {state}")
    again = sum(calls[0].values()) - len(calls[0])
    return Line(
        "P2", "effects of killed and stopped workers stand once in the provider's book",
        len(found), {"sent again with the same key": again, "keyless sent again": 0}, broken,
    )  # fmt: skip
