"""Many timers due in the same second (target W12)."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db import connection

from bench import machine, seeding
from bench.marks import wait_until
from bench.report import Figure, Row
from bench.stage import Stage
from bench.statements import forget_statements, lines, statements
from orchestrator.models import Run

SHAPE = "timer"
AHEAD_S = 3.0
_LATENESS = """
SELECT extract(epoch FROM fired.at - %s)::float8 FROM orchestrator_event fired
 WHERE fired.type = 'timer.fired' ORDER BY 1
"""


def measure(stage: Stage) -> Iterator[Figure]:
    """How late they fire, with the bodies behind them running on the same machine."""
    count = 1_500 if stage.quick else 10_000
    seeding.clear()
    key = UUID(stage.ours.start(SHAPE))
    wait_until(lambda: Run.objects.filter(pk=key, state="waiting").exists(), "a run to wait")
    mould = seeding.take_mould(key)
    cost = seeding.cast(mould, count, due=lambda _: datetime.now(UTC) + timedelta(days=1))
    seeding.settle_down()
    due = datetime.now(UTC) + timedelta(seconds=AHEAD_S)
    _set_due(due, key)
    stage.marks.skip()
    forget_statements()
    before = stage.read()
    stage.marks.await_bodies(count, every=0.02)
    open_runs = Run.objects.filter(finished_at=None).exclude(pk=key)
    wait_until(lambda: not open_runs.exists(), "runs to end", every=0.02)
    span = machine.between(before, stage.read())
    ended = time.time() - due.timestamp()
    late = _lateness(due)
    cuts = statistics.quantiles(late, n=100, method="inclusive")
    cpu = {name: value * 1000 / count for name, value in span.cpu.items() if value > 0.1}
    yield Figure(
        name="W12 timers",
        title=f"{count} timers due at once, each with a body behind it (seeded in {cost:.1f} s;"
        " CPU in ms a timer)",
        unit="p99 s late",
        ours=Row(
            side=stage.ours.name,
            value=cuts[98],
            shown={
                "p50 s": cuts[49],
                "last s": late[-1],
                "timers/s": count / late[-1],
                "all runs ended s": ended,
                **cpu,
            },
        ),
        as_number=True,
        target=5.0,
        note=span.note,
        details=lines(statements(), count, limit=16),
    )
    seeding.clear()


def _set_due(due: datetime, but: UUID) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE orchestrator_timer SET fire_at = %s WHERE run_id <> %s", [due, but])


def _lateness(due: datetime) -> list[float]:
    with connection.cursor() as cursor:
        cursor.execute(_LATENESS, [due])
        return [late for (late,) in cursor.fetchall()]
