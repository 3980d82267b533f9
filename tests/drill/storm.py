"""Many runs of every shape while workers, servers and messages are hurt all the time."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.chaos import checks
from tests.chaos.meddler import Meddler, read_url, unreliable
from tests.chaos.processes import world
from tests.chaos.storm import Storm
from tests.drill.line import Line, Size, minutes
from tests.drill.replays import replay_line

RUNS_A_MINUTE = 330  # as many as two cores carry beside the kills


@dataclass(frozen=True)
class Weather:
    """How many runs, for how long, and how often something is hurt."""

    runs: int
    lasts_s: float
    every_s: float


def _weather(size: Size) -> Weather:
    if size is Size.QUICK:
        return Weather(runs=30, lasts_s=14, every_s=1.6)
    if size is Size.SHORT:
        return Weather(runs=150, lasts_s=60, every_s=1.8)
    lasts = minutes()
    return Weather(runs=min(20_000, int(lasts * RUNS_A_MINUTE)), lasts_s=lasts * 60, every_s=2.0)


def kill_storm(size: Size, seed: int) -> Iterator[Line]:
    """Kills, restarts and flushes by chance; then the client's and the bodies' own logs decide."""
    weather = _weather(size)
    folder = Path(tempfile.mkdtemp(prefix="storm-"))
    with world(folder, lease_s=3 if size is Size.QUICK else 6) as mine:
        url = mine.urls["BROKER_URL"]
        storm = Storm(
            mine,
            runs=weather.runs,
            seed=seed,
            lasts_s=weather.lasts_s,
            every_s=weather.every_s,
            read_url=read_url(url),
        )
        storm.say = _teller(storm)
        with Meddler(url, unreliable, seed=seed, patience_s=1.0) as meddler:
            storm.blow()
        yield from _judged(storm, meddler.done)


def _teller(storm: Storm) -> Callable[[str], None]:
    began = time.monotonic()

    def say(what: str) -> None:
        now = storm.progress()
        print(f"{time.monotonic() - began:7.1f} s  {now}  {what}", file=sys.stderr, flush=True)

    return say


def _judged(storm: Storm, messages: Mapping[str, int]) -> Iterator[Line]:
    """The lines of a storm that is over."""
    done, facts = storm.done, storm.facts()
    hurt = {
        "kills": sum(n for name, n in done.items() if name.startswith("kill")),
        "PostgreSQL restarts": done["restart postgres"],
        "broker flushes": done["flush the broker"],
        "broker kills": done["restart the broker"],
    }
    started = storm.progress()["started"]
    yield Line(
        "P1", "every start that was acknowledged in a storm of kills is stored", started,
        hurt | {"lost": len(storm.lost)}, storm.lost,
    )  # fmt: skip
    ended = storm.progress()["ended"]
    yield Line(
        "P1 P4", "every run of the storm ends as its workflow says, with the right output", ended,
        {"quarantined": storm.done_quarantined}
        | _only(facts, "retries after failures")
        | dict(messages),
        storm.failures + checks.found(checks.NOT_ENDED, checks.LEFT, checks.UNHEARD),
    )  # fmt: skip
    yield Line(
        "P2", "no body begins again after its step was committed as completed",
        facts["bodies run"], _only(facts, "steps completed"),
        checks.found(checks.AGAIN, checks.TWICE, checks.DOUBLED, checks.UNSEEN),
    )  # fmt: skip
    yield Line(
        "P3", "no attempt with a stale fence ever commits", facts["attempts in the ledger"],
        _only(facts, "attempts lost with their worker", "late results kept as evidence"),
        checks.found(checks.STALE),
    )  # fmt: skip
    stored = checks.count("SELECT count(*) FROM orchestrator_run")
    events = checks.count("SELECT count(*) FROM orchestrator_event")
    yield Line(
        "P11", "after the storm manage.py verify finds nothing, no history has a gap", stored,
        {"events": events}, checks.what_verify_finds(),
    )  # fmt: skip
    yield replay_line()


def _only(facts: dict[str, int], *names: str) -> dict[str, int]:
    return {name: facts[name] for name in names}
