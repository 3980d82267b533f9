from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.graph import Graph, longest_remaining

KEYS = [f"s{i}" for i in range(8)]
Arrows = list[tuple[str, str]]
ARROWS: st.SearchStrategy[Arrows] = st.lists(
    st.tuples(st.sampled_from(KEYS), st.sampled_from(KEYS)), max_size=20
)
DAGS = ARROWS.map(lambda arrows: [(a, b) for a, b in arrows if a < b])


@given(DAGS, st.permutations(KEYS))
def test_the_order_puts_every_step_behind_what_it_needs(arrows: Arrows, keys: list[str]) -> None:
    graph = Graph(keys, arrows)
    order = graph.order()
    assert sorted(order) == KEYS
    assert all(order.index(source) < order.index(target) for source, target in arrows)
    assert graph.cycles() == ()


@given(DAGS)
def test_a_rank_is_one_more_than_the_longest_behind_it(arrows: Arrows) -> None:
    graph = Graph(KEYS, arrows)
    ranks = longest_remaining(KEYS, arrows)
    for key in KEYS:
        assert ranks[key] == 1 + max((ranks[after] for after in graph.after[key]), default=0)


@given(ARROWS)
def test_ancestors_and_reach_are_two_views_of_one_thing(arrows: Arrows) -> None:
    graph = Graph(KEYS, arrows)
    for source in KEYS:
        behind = graph.reachable(graph.after[source])
        for target in KEYS:
            assert (target in behind) == (source in graph.ancestors(target))
            assert graph.leads_to(source, target) == (target in behind)


@given(ARROWS)
def test_a_cycle_is_found_exactly_when_the_order_is_not_whole(arrows: Arrows) -> None:
    graph = Graph(KEYS, arrows)
    cycles = graph.cycles()
    assert bool(cycles) == (len(graph.order()) < len(KEYS))
    for cycle in cycles:
        ring = [*cycle, cycle[0]]
        assert all(pair in arrows for pair in pairwise(ring))
        assert len(set(cycle)) == len(cycle)


def test_a_cycle_names_its_members_and_nobody_else() -> None:
    arrows = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("z", "a"), ("e", "e")]
    assert Graph("abcdez", arrows).cycles() == (("a", "b", "c"), ("e",))


def test_two_thousand_steps_in_a_row_are_no_trouble() -> None:
    keys = [f"s{i}" for i in range(2000)]
    graph = Graph(keys, pairwise(keys))
    assert graph.order() == tuple(keys)
    assert graph.ranks()["s0"] == 2000
    assert graph.leads_to("s0", "s1999")
    assert not graph.leads_to("s1999", "s0")


def test_arrows_of_unknown_steps_are_left_out() -> None:
    assert Graph(["a"], [("a", "x"), ("y", "a")]).order() == ("a",)
