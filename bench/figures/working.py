"""Ten thousand unfinished runs that work, and workers that are killed meanwhile (target W11).

A run of two steps, a pause and two steps. So many stand in their pause; they wake at random
instants, and as many new ones come: so the load is a rate of runs, and as many stay unfinished. The
rate climbs until a target is missed. Steps take 3 ms on average, some ten times as long.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db import connection

from bench import machine, seeding
from bench.doors import arrivals
from bench.marks import Body, second_half, wait_until
from bench.report import Figure, Row, percentile
from bench.stage import Stage
from config.embedded import Child
from orchestrator.models import Run, Step

SHAPE = "work"
START_MS, GAP_MS = 500.0, 100.0
_BETWEEN_S = 1.0
_FRESH_S = 0.5
_FAR = timedelta(days=1)
STEPS = 4
_OPEN = ("pending", "running")


@dataclass(slots=True)
class Level:
    """One stretch at one rate. Instants in ns of the monotonic clock; ``started``: by run, when its
    start was due."""

    rate: float
    began: int = 0
    ended: int = 0
    started: dict[str, int] = field(default_factory=dict)
    unfinished: int = 0
    kills: int = 0
    waits: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    span: machine.Span | None = None

    def weigh(self, bodies: Mapping[str, Sequence[Body]], now: int) -> None:
        """Work out both latencies, in ms; what has not begun by ``now`` is as late as it is now."""
        first = {key: bodies[key][0].began if key in bodies else None for key in self.started}
        fresh = now - int(_FRESH_S * 1e9)
        due = [(first[key], at) for key, at in self.started.items() if first[key] or at < fresh]
        self.waits = [((began or now) - at) / 1e6 for began, at in due]
        self.gaps = []
        for found in bodies.values():
            for one, two in itertools.zip_longest(found, found[1:]):
                if not self.began <= one.ended < self.ended:
                    continue
                if two is not None:
                    self.gaps.append((two.began - one.ended) / 1e6)
                elif len(found) == 1 and one.ended < fresh:
                    self.gaps.append((now - one.ended) / 1e6)

    @property
    def is_held(self) -> bool:
        """Whether both targets were reached."""
        return percentile(self.waits, 99) < START_MS and percentile(self.gaps, 99) < GAP_MS


def measure(stage: Stage) -> Iterator[Figure]:
    """Seed the standing runs, climb, let everything end, count what is there."""
    n_runs, seconds = (1_500, 5.0) if stage.quick else (10_000, 12.0)
    rates = (40.0, 80.0) if stage.quick else (50.0, 75.0, 100.0, 125.0, 150.0, 175.0, 200.0)
    stage.warm_up([stage.ours], ["chain"])
    seeding.clear()
    mould = _mould(stage)
    plan = _wakings([Level(rate) for rate in rates], seconds, n_runs)
    seeding.cast(mould, n_runs, due=lambda n: _EPOCH + timedelta(seconds=plan[n]))
    seeding.settle_down()
    stage.marks.skip()
    keeper = stage.crew.kept_up()
    levels, woken = _climb(stage, keeper, rates, seconds)
    keeper.stop()
    missing = _missing(stage, levels, woken)
    held = next((one for one in reversed(levels) if one.is_held), levels[0])
    plain = [_plain(stage, held.rate, 2.0 if stage.quick else 6.0)] if stage.late else []
    for name, target in (("start", START_MS), ("gap", GAP_MS)):
        yield _figure(name, levels, held, [_plain_row(stage, one, name) for one in plain], target)
    yield Figure(
        name="W11 lost",
        title="runs that did not do all that was due, after every worker that was killed",
        unit="runs",
        ours=Row(
            side=stage.ours.name,
            value=float(missing),
            shown={
                "started": float(sum(len(one.started) for one in levels)),
                "woken": float(woken),
                "kills": float(sum(one.kills for one in levels)),
            },
        ),
        as_number=True,
        target=0.0,
    )
    seeding.clear()


_EPOCH = datetime(2100, 1, 1, tzinfo=UTC)


def _mould(stage: Stage) -> seeding.Mould:
    """A run in its pause, brought there by the engine."""
    key = UUID(stage.ours.start(SHAPE, {"due": _EPOCH.isoformat()}))
    wait_until(lambda: Run.objects.filter(pk=key, state="waiting").exists(), "a run to pause")
    return seeding.take_mould(key)


def _wakings(levels: Sequence[Level], seconds: float, n_runs: int) -> list[float]:
    """When each standing run wakes, in seconds from the beginning: at each level's rate, the rest
    long after the end."""
    chance = random.Random(11)
    found: list[float] = []
    for number, level in enumerate(levels):
        start = number * (seconds + _BETWEEN_S)
        found += [start + chance.uniform(0, seconds) for _ in range(int(level.rate * seconds))]
    return found[:n_runs] + [_FAR.total_seconds()] * (n_runs - len(found))


def _climb(
    stage: Stage, keeper: Child, rates: Sequence[float], seconds: float
) -> tuple[list[Level], int]:
    """The levels up to the first that was not held, and how many standing runs have woken."""
    levels: list[Level] = []
    begin = datetime.now(UTC) + timedelta(seconds=_BETWEEN_S)
    at = time.monotonic() + _BETWEEN_S
    _shift(begin - _EPOCH)
    for number, rate in enumerate(rates):
        level = Level(rate)
        before = stage.read()
        _run(stage, keeper, level, at + number * (seconds + _BETWEEN_S), seconds, number)
        level.unfinished = Run.objects.filter(finished_at=None).count()
        level.span = machine.between(before, stage.read())
        level.weigh(stage.marks.by_run(), time.monotonic_ns())
        levels.append(level)
        if not level.is_held:
            break
    woken = _let_the_rest_sleep()
    still_open = Run.objects.filter(state__in=_OPEN)
    wait_until(lambda: not still_open.exists(), "runs to pause or end", every=0.1)
    bodies = stage.marks.by_run()
    for level in levels:
        level.weigh(bodies, time.monotonic_ns())
    return levels, woken


def _run(stage: Stage, keeper: Child, level: Level, at: float, seconds: float, number: int) -> None:
    """New runs at random instants; in the middle a pool's child, or a whole worker, is killed."""
    far = {"due": (datetime.now(UTC) + _FAR).isoformat()}
    level.began, level.ended = int(at * 1e9), int((at + seconds) * 1e9)
    kill_at = at + seconds / 2
    for due in arrivals(level.rate, seconds):
        time.sleep(max(0.0, at + due - time.monotonic()))
        if level.kills == 0 and time.monotonic() > kill_at:
            level.kills += _kill(keeper, whole=number % 2 == 1)
        level.started[stage.ours.start(SHAPE, far)] = int((at + due) * 1e9)
    time.sleep(max(0.0, at + seconds - time.monotonic()))


def _kill(keeper: Child, *, whole: bool) -> bool:
    """SIGKILL for a pool's child with a step in hand, or for its whole worker; False: all idle."""
    (worker,) = machine.children(keeper.pid)
    names = Step.objects.filter(state="running").values_list("worker", flat=True)
    at_work = {int(name.split(":")[1]) for name in names if name}
    victims = [child for child in machine.children(worker) if child in at_work]
    if victims:
        os.kill(worker if whole else victims[0], signal.SIGKILL)
    return bool(victims)


def _shift(by: timedelta) -> None:
    _execute("UPDATE orchestrator_timer SET fire_at = fire_at + %s", by)


def _let_the_rest_sleep() -> int:
    """Put off what is not due yet; how many have fired, or are about to."""
    _execute(
        "UPDATE orchestrator_timer SET fire_at = fire_at + %s WHERE fire_at > orchestrator_now()",
        _FAR,
    )
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT (SELECT count(*) FROM orchestrator_event WHERE type = 'timer.fired')"
            " + (SELECT count(*) FROM orchestrator_timer WHERE fire_at <= orchestrator_now())"
        )
        count: int = cursor.fetchone()[0]
    return count


def _execute(sql: str, *params: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)


def _missing(stage: Stage, levels: Sequence[Level], woken: int) -> int:
    """Runs without both bodies of a half that was due, or without the state that they should have.

    After a kill a body may have run twice; that is allowed (its step says that it may be).
    """
    bodies = stage.marks.by_run()
    started = {key for level in levels for key in level.started}
    waiting = set(Run.objects.filter(state="waiting").values_list("pk", flat=True))
    ended = set(Run.objects.filter(state="completed").values_list("pk", flat=True))
    stray = [key for key in started if len(bodies.get(key, ())) < 2 or UUID(key) not in waiting]
    half = [pk for pk in ended if len(bodies.get(second_half(pk.hex), ())) < 2]
    return len(stray) + len(half) + abs(woken - len(ended))


def _plain(stage: Stage, rate: float, seconds: float) -> Level:
    """Chains of two such steps at the same rate of steps, nothing waiting and nobody killed."""
    level = Level(2 * rate)
    stage.marks.skip()
    stage.warm_up([stage.late[-1]], [SHAPE])
    stage.marks.skip()
    at = time.monotonic() + _BETWEEN_S
    level.began, level.ended = int(at * 1e9), int((at + seconds) * 1e9)
    for due in arrivals(level.rate, seconds):
        time.sleep(max(0.0, at + due - time.monotonic()))
        level.started[stage.late[-1].start(SHAPE)] = int((at + due) * 1e9)
    stage.marks.await_bodies(2 * len(level.started), every=0.01)
    level.weigh(stage.marks.by_run(), time.monotonic_ns())
    return level


def _figure(
    name: str, levels: Sequence[Level], held: Level, plain: Sequence[Row], target: float
) -> Figure:
    """One of the two latencies, at the highest rate that was held and at the others."""
    what = "waits" if name == "start" else "gaps"
    highest = f"{held.rate:.0f} runs/s ({held.rate * STEPS:.0f} steps/s)"
    return Figure(
        name=f"W11 {name}",
        title=f"{_TITLES[name]}, {held.unfinished} runs unfinished, a kill each level;"
        f" highest load held: {highest if held.is_held else 'none, here the lowest'}",
        unit="p99 ms",
        ours=_row("orchestrator", held, what),
        beside=[
            *(_row(f"orchestrator, {one.rate:.0f} runs/s", one, what) for one in levels),
            *plain,
        ],
        as_number=True,
        target=target,
        note=held.span.note if held.span else "",
    )


_TITLES = {
    "start": "start call (when it was due) to the first body",
    "gap": "end of a body to the start of the next",
}


def _plain_row(stage: Stage, level: Level, name: str) -> Row:
    side = f"{stage.late[-1].name}, chains of 2, {level.rate:.0f}/s"
    return _row(side, level, "waits" if name == "start" else "gaps")


def _row(side: str, level: Level, what: str) -> Row:
    values = getattr(level, what)
    shown = {f"p{n} ms": percentile(values, n) for n in (50, 95)}
    shown["samples"] = float(len(values))
    shown["slowest ms"] = max(values)
    return Row(side=side, value=percentile(values, 99), shown=shown)
