"""Three beats at once, and machines whose clocks are an hour off."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from orchestrator.models import Run
from tests.chaos import checks, shapes
from tests.chaos.shapes import Shape
from tests.drill.line import Line, Size
from tests.drill.replays import replay_all
from tests.drill.scene import Scene, ask, scene, spread

HOUR_S = 3600.0
WAIT_S = 3
LATE_S = 1.0  # pulse looks each half second
TICK_S = 5.0  # beat ticks so often
COUNTS = {Size.QUICK: 6, Size.SHORT: 20, Size.LONG: 200}


def _waits(name: str, seconds: int) -> Shape:
    work = shapes.work
    steps: dict[str, Any] = {
        "begin": work("input.value"),
        "rest": {"type": "wait", "for": f"{seconds}s", "needs": ["begin"]},
        "shaky": work(shapes.value_of("begin"), "rest", input={"fail_first": 1}),
    }
    return Shape(
        name=name, steps=steps, expected=lambda given: {"shaky": {"value": given["value"] + 2}}
    )


TIMED = _waits("timed", WAIT_S)


def hours_off(size: Size, seed: int) -> Iterator[Line]:
    """Workers, pulse and beats whose clocks are wrong; then three beats alone, without pulse."""
    with scene(lease_s=15, seed=seed, publish=(TIMED,)) as here:
        yield _wrong_clocks(here, COUNTS[size])
        yield _three_beats(here, COUNTS[size])


def _wrong_clocks(here: Scene, count: int) -> Line:
    """Ahead, behind and right, in every kind of process; the database's own clock is right."""
    fleet = here.fleet
    for part, skew in (
        ("worker-engine", HOUR_S),
        ("worker-tool", HOUR_S),
        ("worker-tool", -HOUR_S),
        ("pulse", HOUR_S),
        ("pulse", -HOUR_S),
        ("beat", 0.0),
        ("beat", HOUR_S),
        ("beat", -HOUR_S),
    ):
        fleet.start(part, skew_s=skew)
    fleet.await_ready([p for p in fleet.alive() if p.part.startswith("worker")])
    runs = [here.place.start(TIMED, value=n) for n in range(count)]
    broken, late = _judged(here, runs, LATE_S)
    fleet.stop()
    return Line(
        "P7", "clocks of workers, pulse and beats are an hour ahead or behind: no timer is early",
        len(late), {"early": _early(late)} | spread(late, "s late"), broken,
    )  # fmt: skip


def _three_beats(here: Scene, count: int) -> Line:
    """The second path of the sweeps, three at once; right clocks, no pulse."""
    fleet = here.fleet
    here.world.flush_broker()
    fleet.start_ready(("worker-engine", "worker-tool", "beat", "beat", "beat"))
    runs = [here.place.start(TIMED, value=n) for n in range(count)]
    broken, late = _judged(here, runs, 2 * TICK_S)
    return Line(
        "P7 P8", "three beats at once, without pulse: each timer fires, once, and none early",
        len(late), {"early": _early(late)} | spread(late, "s late"), broken,
    )  # fmt: skip


def _early(late: list[float]) -> int:
    return sum(seconds < 0 for seconds in late)


def _judged(here: Scene, runs: list[UUID], bound_s: float) -> tuple[list[str], list[float]]:
    """What is wrong, and how late each timer was, by the history (the database's clock)."""
    broken: list[str] = []
    try:
        here.place.await_end(runs, 60)
    except AssertionError as error:
        broken.append(str(error))
    late: list[float] = []
    for run in runs:
        fired = ask(
            "SELECT extract(epoch FROM f.at - s.at)::float8 - %s FROM orchestrator_event s"
            " JOIN orchestrator_event f ON f.run_id = s.run_id AND f.step = s.step"
            " AND f.type = 'timer.fired' WHERE s.run_id = %s AND s.step = 'rest'"
            " AND s.type = 'timer.set'",
            WAIT_S, run,
        )  # fmt: skip
        if len(fired) != 1:
            broken.append(f"{run}: its timer fired {len(fired)} times")
        late += [seconds for (seconds,) in fired]
        broken += [f"{run}: its timer fired {-s:.3f} s early" for (s,) in fired if s < 0]
        found = Run.objects.get(pk=run)
        if found.state != "completed" or found.output is None:
            broken.append(f"{run} is {found.state}: {found.error}")
    if late and (p99 := spread(late)["p99 s"]) > bound_s:
        broken.append(f"timers were up to {p99} s late")
    # The bodies' ledger is written by clocks that are wrong on purpose: no question by its time.
    broken += checks.found(checks.STALE, checks.TWICE, checks.DOUBLED, checks.LEFT)
    return broken + checks.what_verify_finds() + replay_all(), late
