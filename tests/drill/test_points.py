"""Crash points stand where they should, and dying at one of them is survived."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from django.db import connection

from orchestrator import engine
from orchestrator.engine import ports
from tests.drill import scenarios
from tests.drill.life import Story
from tests.drill.points import Driver, Tally
from tests.drill.providers import Provider, providers
from tests.drill.witness import witness


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[Provider, Provider]]:
    with providers() as made:
        yield made


@pytest.fixture
def driver(transactional_db: None, both: tuple[Provider, Provider]) -> Iterator[Driver]:
    scenarios.publish_all()
    usual = ports.dispatcher()
    yield Driver(*both, seed=1)
    engine.set_dispatcher(usual)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE orchestrator_clock SET turned_by = '0'")


def test_between_two_commits_of_the_engine_there_is_a_crash_point(driver: Driver) -> None:
    """Over every kind of step: sweeps, waits, people, children, loops, sagas and repairs."""
    broken: list[str] = []
    with witness() as seen:
        for scenario in scenarios.ALL:
            story: Story = driver.story(scenario)
            scenario.live(story)
            broken += [f"{scenario.name}: {what}" for what in scenario.broken(story)]
    assert sorted(seen.nameless) == [], "put a crash_point before it and one after it"
    assert broken == []
    assert seen.commits > 200, "the witness sees nothing any more"


def test_a_commit_without_a_place_is_seen(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = ("models.moves", "models.rows", "models.advance", "engine.work", "engine.company")
    for module in (*silent, "engine.steps"):
        monkeypatch.setattr(f"orchestrator.{module}.crash_point", lambda _: None)
    scenario = next(s for s in scenarios.ALL if s.name == "plain")
    with witness() as seen:
        scenario.live(driver.story(scenario))
    assert any("orchestrator_pass_on" in where for where in seen.nameless), seen.nameless


@pytest.mark.parametrize("name", ["keyed", "keyless_looked_up"])
def test_a_worker_killed_around_its_effect_leaves_one_line_in_the_providers_book(
    driver: Driver, name: str
) -> None:
    """The short form of the drill ``killed``: ``python -m tests.drill --only killed``."""
    scenario = next(s for s in scenarios.ALL if s.name == name)
    tally = Tally()
    partial(driver.kill_everywhere, first=6)(scenario, tally)
    assert tally.broken == []
    assert {"provider:post", "provider:unread", "body:after", "apply:before"} <= set(tally.places)
