"""A long history: the run's page, a claim and the sweeps over millions of events (target W10)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from uuid import UUID

from django.db import connection

from bench import machine
from bench.figures.standing import ensure
from bench.report import Figure, Row, percentiles
from bench.stage import Stage
from orchestrator import engine
from orchestrator.engine import pulse
from orchestrator.engine.reading import picture
from orchestrator.models import Event, Run
from orchestrator.ops import watch

PAGE = 100


def measure(stage: Stage) -> Iterator[Figure]:
    """Each by itself in this process, the sweeps stopped elsewhere."""
    ensure(stage, 9_000 if stage.quick else 850_000)
    events = _n_events()
    stage.stop_pulse()
    try:
        before = stage.read()
        runs = _some_runs(60 if stage.quick else 300)
        pages = [_timed(lambda run=run: _page(run)) for run in runs]
        rounds = [_timed(engine.beat_once) for _ in range(20)]
        each = {name: _timed(sweep) for name, sweep in pulse.SWEEPS}
        looks = [_timed(watch.look_around) for _ in range(3)]
        claims = _claims(stage, 20 if stage.quick else 100)
        span = machine.between(before, stage.read())
    finally:
        stage.start_pulse()
    p50, p95 = percentiles(pages)
    yield Figure(
        name="W10 run page",
        title=f"the run's picture and {PAGE} lines of its history, of {events} events",
        unit="p95 ms",
        ours=Row(
            side=stage.ours.name,
            value=p95,
            shown={
                "p50 ms": p50,
                "start to body p95 ms": percentiles(claims)[1],
                "round of sweeps p95 ms": percentiles(rounds)[1],
                "a look of the watch ms": max(looks),
            },
        ),
        as_number=True,
        target=150.0,
        note=span.note,
        details=[f"{ms:8.2f} ms  sweep of {name}" for name, ms in each.items()],
    )


def _timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return (time.perf_counter() - began) * 1000


def _some_runs(count: int) -> list[UUID]:
    """Runs from all over the table, found by their ids."""
    first, last = _ends()
    found = []
    for _ in range(count):
        near = UUID(int=random.randint(first.int, last.int))
        found.append(
            Run.objects.filter(pk__gte=near).order_by("pk").values_list("pk", flat=True)[0]
        )
    return found


def _ends() -> tuple[UUID, UUID]:
    ids = Run.objects.values_list("pk", flat=True)
    return ids.order_by("pk")[0], ids.order_by("-pk")[0]


def _page(run_id: UUID) -> None:
    """What the API and the console read of a run."""
    picture(Run.objects.get(pk=run_id))
    list(Event.objects.filter(run_id=run_id).order_by("seq")[:PAGE])


def _claims(stage: Stage, count: int) -> list[float]:
    times = []
    for _ in range(count):
        called = time.monotonic_ns()
        key = stage.run_alone(stage.ours, "single")
        times.append((stage.marks.by_run()[key][0].began - called) / 1e6)
    return times


def _n_events() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM orchestrator_event")
        count: int = cursor.fetchone()[0]
    return count
