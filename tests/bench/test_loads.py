"""The bench's open loops: calls come when they are due, and what is late counts as late."""

from __future__ import annotations

from bench.doors import arrivals
from bench.figures.working import Level
from bench.marks import Body, second_half

MS = 1_000_000


def test_every_side_is_offered_the_same_instants() -> None:
    first, second = arrivals(100, 5.0), arrivals(100, 5.0)
    assert first == second
    assert 400 < len(first) < 600
    assert list(first) == sorted(first)
    assert 0 < first[0] < first[-1] < 5.0


def test_a_run_has_another_key_behind_its_pause() -> None:
    key = "0190b5a8-0000-7000-8000-0000000000fe"
    assert second_half(key) == "0190b5a80000700080000000000000ff"
    assert second_half(second_half(key)) == key.replace("-", "")


def test_what_has_not_begun_is_as_late_as_it_is_now() -> None:
    level = Level(rate=1.0, began=0, ended=10_000 * MS)
    level.started = {"quick": 1_000 * MS, "hanging": 2_000 * MS, "just called": 9_900 * MS}
    level.weigh({"quick": [Body(1_005 * MS, 1_010 * MS)]}, now=10_000 * MS)
    assert sorted(level.waits) == [5.0, 8_000.0]


def test_gaps_count_where_they_begin_and_open_ones_too() -> None:
    level = Level(rate=1.0, began=0, ended=5_000 * MS)
    bodies = {
        "whole": [Body(1_000 * MS, 1_003 * MS), Body(1_004 * MS, 1_006 * MS)],
        "killed": [Body(2_000 * MS, 2_003 * MS)],
        "of the next level": [Body(6_000 * MS, 6_001 * MS), Body(6_050 * MS, 6_051 * MS)],
    }
    level.weigh(bodies, now=10_000 * MS)
    assert sorted(level.gaps) == [1.0, 7_997.0]
