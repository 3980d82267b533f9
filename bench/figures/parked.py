"""Many runs parked at a gate: how fast, how large, and how fast they go on (target W6)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

from django.db import connection

from approvals_app.decisions import DecisionBody, decide
from approvals_app.models import Request
from approvals_app.policy import Person
from bench import machine, seeding
from bench.documents import DECIDER, TENANT
from bench.marks import wait_until
from bench.report import Figure, Row
from bench.stage import Stage
from bench.statements import forget_statements, lines, statements
from orchestrator.models import Run

SHAPE = "gate"
CLIENTS = 2
_BODY = DecisionBody(decision="approve")
_PERSON = Person(actor=DECIDER, roles=frozenset())


def measure(stage: Stage) -> Iterator[Figure]:
    """Start them through the face, wait until all are parked, then decide some of them."""
    n_runs, n_decided = (1_500, 200) if stage.quick else (10_000, 1_000)
    _warm_up(stage)
    seeding.clear()
    empty, memory = seeding.total_bytes(), stage.memory()
    before = stage.read()
    forget_statements()
    seconds = _park(stage, n_runs)
    span = machine.between(before, stage.read())
    found = statements()
    grown = (stage.memory() - memory) / 2**20
    cpu = {name: value * 1000 / n_runs for name, value in span.cpu.items() if value > 0.1}
    yield Figure(
        name="W6 parking",
        title=f"{n_runs} runs started by {CLIENTS} clients until all wait at their gate"
        f" (target for 10,000; CPU in ms a run)",
        unit="s",
        ours=Row(
            side=stage.ours.name,
            value=seconds,
            shown={"runs/s": n_runs / seconds, **cpu, "workers grew by MB": grown},
        ),
        as_number=True,
        target=20.0 * n_runs / 10_000,
        note=span.note,
        details=lines(found, n_runs, limit=12),
    )
    yield _storage(stage, n_runs, empty)
    yield _resuming(stage, n_decided)
    seeding.clear()


def _warm_up(stage: Stage) -> None:
    for _ in range(6):
        stage.marks.skip()
        key = UUID(stage.ours.start(SHAPE))
        wait_until(lambda key=key: _n_waiting([key]) == 1, "a run to be parked")
        _decide(Request.objects.values_list("pk", flat=True).get(run_id=key))
        stage.marks.await_bodies(1)
        stage.ours.await_ends([key.hex])


def _park(stage: Stage, n_runs: int) -> float:
    clients = [stage.crew.client(SHAPE, n_runs // CLIENTS) for _ in range(CLIENTS)]
    for client in clients:
        assert client.stdout is not None
        if client.stdout.readline() != "ready\n":
            raise RuntimeError("a client of the bench does not start")
    began = time.monotonic()
    for client in clients:
        assert client.stdin is not None
        client.stdin.write("go\n")
        client.stdin.flush()
    for client in clients:
        if client.wait():
            raise RuntimeError("a client of the bench failed")
    wait_until(lambda: _n_waiting() == n_runs, "all runs to be parked", every=0.05)
    return time.monotonic() - began


def _n_waiting(only: Sequence[UUID] = ()) -> int:
    found = Run.objects.filter(state="waiting")
    return (found.filter(pk__in=only) if only else found).count()


def _storage(stage: Stage, n_runs: int, empty: int) -> Figure:
    with connection.cursor() as cursor:
        cursor.execute("CHECKPOINT")
    kb = (seeding.total_bytes() - empty) / n_runs / 1024
    largest = [
        f"{size / n_runs:8.0f} bytes a run  {name}"
        for name, size in list(seeding.sizes().items())[:24]
    ]
    return Figure(
        name="W6 storage",
        title="growth of all tables, indexes and TOAST by a parked run",
        unit="KB a run",
        ours=Row(side=stage.ours.name, value=kb),
        as_number=True,
        target=4.0,
        details=largest,
    )


def _resuming(stage: Stage, count: int) -> Figure:
    """``decide`` in this process, as a web process does with some requests at once."""
    found = list(Request.objects.order_by("?").values_list("pk", "run_id")[:count])
    stage.marks.skip()
    forget_statements()
    before = stage.read()
    began = time.monotonic()
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(_decide, [pk for pk, _ in found]))
        decided = time.monotonic() - began
        for _ in range(CLIENTS):
            pool.submit(connection.close)
    stage.marks.await_bodies(count, every=0.005)
    stage.ours.await_ends([run.hex for _, run in found])
    seconds = time.monotonic() - began
    span = machine.between(before, stage.read())
    cpu = {name: value * 1000 / count for name, value in span.cpu.items() if value > 0.02}
    return Figure(
        name="W6 resuming",
        title=f"{count} of them decided in this process ({CLIENTS} threads) until all have ended"
        " (CPU in ms a run)",
        unit="runs/s",
        ours=Row(
            side=stage.ours.name,
            value=count / seconds,
            shown={"decisions/s": count / decided, **cpu},
        ),
        as_number=True,
        more_is_better=True,
        target=800,
        note=span.note,
        details=lines(statements(), count, limit=16),
    )


def _decide(request: UUID) -> None:
    decide(request, _BODY, tenant=TENANT, person=_PERSON)
