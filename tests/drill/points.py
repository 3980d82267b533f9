"""Die at the n-th crash point, for n = 1, 2, … until there is none left; then recover and look.

Three ways to die: the process is killed; its connection is cut in mid-COMMIT, so that it cannot
know; it is stopped past its lease, somebody else does its work, and it wakes.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import uuid4

from django.conf import settings
from django.db import connection, connections

from orchestrator import crash
from orchestrator.conf import engine_settings
from orchestrator.core.errors import OrchestratorError
from tests.drill import scenarios
from tests.drill.app import tools  # noqa: F401 - registers them
from tests.drill.arena import arena
from tests.drill.forking import Child, ChildFailed, Died, fork
from tests.drill.life import Story
from tests.drill.line import Line, Size
from tests.drill.providers import Provider, providers
from tests.drill.providers.process import KEYED_VARIABLE, KEYLESS_VARIABLE
from tests.drill.proxy import Bytes, Pattern, Proxy, Statements, Watcher, is_commit
from tests.drill.scenarios import Scenario
from tests.engine import probes  # noqa: F401 - registers them

MOST = 400
STOPPED_LEASE_S = 0.4
IDLE_MS = 150


@dataclass
class Tally:
    """What a way of dying led to."""

    cases: int = 0
    windows: int = 0
    broken: list[str] = field(default_factory=list)
    places: Counter[str] = field(default_factory=Counter)

    def note(self, scenario: Scenario, n: int, place: str, found: list[str]) -> None:
        """One case: where it died, and what was not as it must be."""
        self.cases += 1
        self.places[place] += 1
        self.broken += [f"{scenario.name} #{n} at {place}: {what}" for what in found]


@dataclass
class Driver:
    """Runs scenarios in forked children of this process, which is warm and holds no connection."""

    keyed: Provider
    keyless: Provider
    seed: int

    def story(self, scenario: Scenario, **how: Any) -> Story:
        """A new affair."""
        return Story(scenario.name, uuid4().hex, self.keyed, self.keyless, **how)

    # -- killed --------------------------------------------------------------------------------

    def kill_everywhere(
        self,
        scenario: Scenario,
        tally: Tally,
        *,
        first: int = 1,
        stride: int = 1,
        twice: bool = False,
    ) -> None:
        """SIGKILL at each place in turn, from the ``first`` on. ``twice``: the one who recovers
        is killed as well. ``stride`` 2: every other place."""
        chance = random.Random(f"{self.seed} {scenario.name}")
        for n in range(first, MOST, stride):
            story = self.story(scenario)
            place = _killed(partial(scenario.live, story), n)
            if place is not None and twice:
                _killed(partial(scenario.live, story), chance.randint(1, 30))
            tally.note(scenario, n, place or "the end", recovered(scenario, story))
            if place is None:
                return
        raise AssertionError(f"{scenario.name} arrives at places without end")

    # -- cut -----------------------------------------------------------------------------------

    def cut_everywhere(self, scenario: Scenario, proxy: Proxy, tally: Tally) -> None:
        """The connection ends at the n-th COMMIT: applied and not told, or never sent."""
        for applied in (True, False):
            for n in range(1, MOST):
                story = self.story(scenario, patient=True)
                trap = proxy.set_trap(partial(Statements, is_commit), nth=n, applied=applied)
                with through(proxy):
                    child = fork(partial(_live_and_look, scenario, story))
                    found = _said(child)
                proxy.lift_trap()
                place = f"COMMIT {'without its answer' if applied else 'that never left'}"
                tally.note(scenario, n, place if trap.sprung else "the end", found)
                if not trap.sprung:
                    break

    def cut_requests(self, scenario: Scenario, tally: Tally) -> None:
        """The call to the provider ends after so many bytes, or when it has been heard."""
        provider = self.keyed if scenario.name == "keyed" else self.keyless
        variable = KEYED_VARIABLE if provider is self.keyed else KEYLESS_VARIABLE
        cuts: list[tuple[str, Callable[[], Watcher]]] = [
            (f"byte {count}", partial(Bytes, count)) for count in (1, 20, 90, 140, 170)
        ]
        cuts.append(("the answer", partial(Pattern, b'"reference"')))
        for n, (place, make) in enumerate(cuts):
            story = self.story(scenario)
            with Proxy(("127.0.0.1", provider.port)) as proxy:
                trap = proxy.set_trap(make)
                os.environ[variable] = f"http://{proxy.host}:{proxy.port}"
                found = recovered(scenario, story)
                os.environ[variable] = provider.url
            tally.note(scenario, n, place, found + ([] if trap.sprung else ["nothing was cut"]))

    # -- stopped -------------------------------------------------------------------------------

    def stop_everywhere(self, scenario: Scenario, tally: Tally, *, first: int = 1) -> None:
        """SIGSTOP at each place until the lease is over and the work done; then SIGCONT."""
        for n in range(first, MOST):
            story = self.story(scenario, patient=True)
            ambush = Ambush(n, signal.SIGSTOP)
            with short_lease():
                sleeper = ambush.lay(partial(_live_stopped, scenario, story))
            if not sleeper.stops():
                tally.note(scenario, n, "the end", _said(sleeper))
                return
            stopped_at = time.monotonic()
            place = ambush.place()
            time.sleep(IDLE_MS * 1.5 / 1000)  # PostgreSQL ends what it left open
            found, before = _outcome(scenario, story)
            left = STOPPED_LEASE_S * 1.2 - (time.monotonic() - stopped_at)
            time.sleep(max(0.0, left))
            sleeper.goes_on()
            found += _said(sleeper)
            again, after = _outcome(scenario, story)
            moved = [] if before == after else [f"the sleeper changed {before} to {after}"]
            if place == "provider:post" and scenario.open_window:
                tally.windows += 1  # no fence reaches a provider without keys: see Scenario
                again = []
            tally.note(scenario, n, place, found + again + moved)


def _outcome(scenario: Scenario, story: Story) -> tuple[list[str], Any]:
    """What is broken once somebody else has done the work, and everything as it is then."""
    said = _said(fork(partial(_recover_and_look, scenario, story, with_fingerprint=True)))
    if said and isinstance(said[-1], dict):
        return said[:-1], said[-1]
    return said, None


def recovered(scenario: Scenario, story: Story) -> list[str]:
    """What a new process, which does the same acts again, finds broken at the end."""
    return _said(fork(partial(_recover_and_look, scenario, story)))


def _recover_and_look(
    scenario: Scenario, story: Story, *, with_fingerprint: bool = False
) -> list[Any]:
    scenario.live(story)
    found: list[Any] = scenario.broken(story)
    return [*found, story.fingerprint()] if with_fingerprint else found


def _live_and_look(scenario: Scenario, story: Story) -> list[str]:
    scenario.live(story)
    found: list[str] = story.do(partial(scenario.broken, story))
    return found


def _said(child: Child) -> list[Any]:
    try:
        return list(child.result() or [])
    except ChildFailed as failure:
        return [str(failure)[-1500:]]
    except Died as death:
        return [f"it died of signal {death}"]


class Ambush:
    """A hook that sends this process a signal at the n-th place it arrives at, and says where."""

    def __init__(self, n: int, number: signal.Signals) -> None:
        self._left, self._number = n, number
        self._reading, self._writing = os.pipe()

    def lay(self, body: Callable[[], Any]) -> Child:
        """Fork the body with this hook."""
        child = fork(partial(self._live, body))
        os.close(self._writing)
        return child

    def _live(self, body: Callable[[], Any]) -> Any:
        crash.set_hook(self._arrive)
        return body()

    def _arrive(self, place: str) -> None:
        self._left -= 1
        if self._left == 0:
            os.write(self._writing, f"{place}\n".encode())
            os.kill(os.getpid(), self._number)

    def place(self) -> str:
        """Where it happened; empty: it never did. Call once."""
        with os.fdopen(self._reading) as words:
            return words.readline().strip()


def _killed(body: Callable[[], Any], n: int) -> str | None:
    """Where the child died, at its ``n``-th place; None: it came to its end before."""
    ambush = Ambush(n, signal.SIGKILL)
    child = ambush.lay(body)
    try:
        child.result()
    except Died:
        return ambush.place()
    ambush.place()
    return None


def _live_stopped(scenario: Scenario, story: Story) -> list[str]:
    """The sleeper's life: what it meets on waking is its caller's affair, not a finding."""
    with connection.cursor() as cursor:
        cursor.execute(f"SET idle_in_transaction_session_timeout = {IDLE_MS}")
    try:
        scenario.live(story)
    except OrchestratorError as refusal:  # somebody else has brought the affair to its end
        print(f"the sleeper was told: {refusal}", file=sys.stderr)
    return []


class through:
    """Children that are forked meanwhile reach the database by the proxy."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    def __enter__(self) -> None:
        entry = connections["default"].settings_dict
        self._before = {name: entry[name] for name in ("HOST", "PORT")}
        entry |= {"HOST": self._proxy.host, "PORT": str(self._proxy.port)}

    def __exit__(self, *_: object) -> None:
        connections["default"].settings_dict.update(self._before)


class short_lease:
    """Children that are forked meanwhile hold leases that are over soon."""

    def __enter__(self) -> None:
        self._before = settings.ORCHESTRATOR
        settings.ORCHESTRATOR = {**self._before, "LEASE_SECONDS": STOPPED_LEASE_S}
        engine_settings.cache_clear()

    def __exit__(self, *_: object) -> None:
        settings.ORCHESTRATOR = self._before
        engine_settings.cache_clear()


START = 9
"""The first place after those of a start, which are the same in every scenario."""


@contextmanager
def _driver(seed: int) -> Iterator[tuple[Driver, str]]:
    """A driver, and the socket of its database."""
    with arena() as here, providers(seed) as (keyed, keyless):
        scenarios.publish_all()
        yield Driver(keyed, keyless, seed), here.socket


def _chosen(size: Size, *names: str) -> list[Scenario]:
    """All of them; of a smaller round the essential ones, of the smallest those named."""
    if size is Size.LONG:
        return list(scenarios.ALL)
    if size is Size.SHORT:
        return [s for s in scenarios.ALL if s.essential]
    return [s for s in scenarios.ALL if s.name in names]


def killed(size: Size, seed: int) -> Iterator[Line]:
    """Killed at each crash point of each kind of step; another process recovers."""
    tally = Tally()
    chosen = _chosen(size, "keyed", "keyless_looked_up", "saga")
    if size is Size.SHORT:
        chosen = list(scenarios.ALL)
    with _driver(seed) as (driver, _):
        for scenario in chosen:
            everything = size is Size.LONG or scenario is chosen[0]
            stride = 1 if everything or scenario.essential else 2
            first = 1 if everything else START + seed % stride
            driver.kill_everywhere(scenario, tally, first=first, stride=stride)
        yield _line("P1 P2 P10", "killed at each crash point", tally, scenarios=len(chosen))
        if size is not Size.QUICK:
            again = Tally()
            for scenario in _chosen(size) if size is Size.LONG else chosen[2:3]:
                driver.kill_everywhere(scenario, again, first=START, twice=True)
            yield _line("P1 P2", "killed there, and again while recovering", again)
        yield _books_line(driver)


def cut(size: Size, seed: int) -> Iterator[Line]:
    """The connection to PostgreSQL, or to a provider, ends in mid-word."""
    tally, chosen = Tally(), _chosen(size, "keyed")
    if size is Size.SHORT:  # each kind of outside act once
        chosen = [
            s for s in chosen if s.name not in ("fork_and_join", "cancelled", "keyless_looked_up")
        ]
    with _driver(seed) as (driver, socket), Proxy(socket) as proxy:
        for scenario in chosen:
            driver.cut_everywhere(scenario, proxy, tally)
        words = "cut at each COMMIT: applied but untold, or never sent"
        yield _line("P5 P6", words, tally, scenarios=len(chosen))
        requests = Tally()
        for scenario in scenarios.ALL:
            if scenario.name in ("keyed", "keyless_looked_up", "keyless_blind"):
                driver.cut_requests(scenario, requests)
        yield _line("P2", "request to a provider cut after N bytes, or before its answer", requests)
        yield _books_line(driver)


def stopped(size: Size, seed: int) -> Iterator[Line]:
    """Stopped past its lease at each crash point, replaced by another, and woken again."""
    tally = Tally()
    names = ("keyed",) if size is Size.QUICK else ("keyed", "keyless_looked_up", "gate")
    chosen = [s for s in scenarios.ALL if s.name in names]
    if size is Size.LONG:
        chosen = _chosen(Size.SHORT)
    with _driver(seed) as (driver, _):
        for scenario in chosen:
            driver.stop_everywhere(scenario, tally, first=START)
        figures = {"scenarios": len(chosen), "beyond any fence": tally.windows}
        yield _line("P3", "stopped past its lease at each crash point, and woken", tally, **figures)


def _books_line(driver: Driver) -> Line:
    """Over all affairs, whatever happened to them."""
    stats = driver.keyed.stats(), driver.keyless.stats()
    doubled = [" ".join(each) for one in stats for each in one["doubled"]]
    applied = sum(one["applied"] for one in stats)
    words = "after all that, no affair stands twice in a provider's book"
    return Line("P2", words, applied, {"doubled": len(doubled)}, doubled[:20])


def _line(promise: str, drill: str, tally: Tally, **figures: int) -> Line:
    shown = {"places": len(tally.places), **figures}
    return Line(promise, drill, tally.cases, shown, tally.broken[:20])
