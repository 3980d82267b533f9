"""Edges, joins, merges, routers, fallbacks and policies (FORMAT section 1), run for real."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.carrier import Carrier
from tests.engine.runs import (
    NO_RETRY,
    error,
    events,
    fail,
    output,
    payload,
    ran,
    say,
    state,
    step,
    steps_of,
)

PAIR = {"a": say({"x": 1, "deep": {"p": 1}}), "b": say({"x": 2, "deep": {"q": 2}})}


def merged(carrier: Carrier, merge: Any, **steps: Any) -> Any:
    last = {"type": "tool", "tool": "probe.only", "needs": ["a", "b"], "merge": merge}
    if merge != "list":
        last = {**last, "type": "router", "routes": [{"id": "r", "to": []}], "default": "r"}
        del last["tool"]
    run = ran(carrier, {**PAIR, **steps, "z": last})
    assert state(run) == "completed"
    return step(run, "z").input


@pytest.mark.parametrize(
    ("merge", "expected"),
    [
        ("nested", {"a": {"x": 1, "deep": {"p": 1}}, "b": {"x": 2, "deep": {"q": 2}}}),
        ("shallow", {"x": 2, "deep": {"q": 2}}),
        ("deep", {"x": 2, "deep": {"p": 1, "q": 2}}),
        ("list", [{"x": 1, "deep": {"p": 1}}, {"x": 2, "deep": {"q": 2}}]),
        ({"expression": "steps.a.output.x + steps.b.output.x"}, 3),
    ],
)
def test_merges_make_the_input_of_a_step_without_one(
    carrier: Carrier, merge: Any, expected: Any
) -> None:
    assert merged(carrier, merge) == expected


def test_merge_first_takes_what_completed_first(carrier: Carrier) -> None:
    slow = {"a": say({"x": 1}, needs=["b"])}
    assert merged(carrier, "first", **slow) == PAIR["b"]["input"]["value"]


def test_one_need_is_merged_by_its_key_too(carrier: Carrier) -> None:
    router = {"type": "router", "routes": [{"id": "r", "to": []}], "default": "r", "needs": ["a"]}
    run = ran(carrier, {"a": say(7), "z": router})
    assert step(run, "z").input == {"a": 7}


def test_skipped_branches_are_absent_from_merges_and_from_the_output(carrier: Carrier) -> None:
    steps = {
        "a": say(1),
        "b": say(2, when="false || input.never"),
        "z": {"type": "tool", "tool": "probe.only", "needs": ["a", "b"], "merge": "list"},
        "side": say(3, when="input.never"),
    }
    run = ran(carrier, steps, {"never": False})
    assert output(run) == {"z": [1]}


def test_objects_cannot_be_laid_over_other_things(carrier: Carrier) -> None:
    run = ran(
        carrier,
        {
            "a": say(1),
            "b": say({}),
            "z": {"type": "tool", "tool": "probe.say", "needs": ["a", "b"], "merge": "shallow"},
        },
    )
    assert (state(run), error(run)["class"]) == ("failed", "condition_error")


def test_conditions_on_edges_choose_the_way(carrier: Carrier) -> None:
    steps = {
        "a": say({"n": 5}),
        "big": say("big", needs=[{"step": "a", "when": "output.n > 3"}]),
        "small": say("small", needs=[{"step": "a", "when": "output.n <= 3"}]),
        "end": say("${{ has(steps.big.output) }}", needs=["big", "small"]),
    }
    run = ran(carrier, steps)
    assert output(run) == {"end": True}
    assert steps_of(run)["small"] == "skipped"


def test_failed_edges_handle_failures_and_time_outs(carrier: Carrier) -> None:
    steps = {
        "a": fail(),
        "usual": say(1, needs=["a"]),
        "rescue": say(2, needs=[{"step": "a", "on": "failed"}]),
        "always": say("${{ steps.a.state }}", needs=[{"step": "a", "on": "any"}]),
    }
    run = ran(carrier, steps)
    assert output(run) == {"rescue": 2, "always": "failed"}
    assert steps_of(run)["usual"] == "skipped"


def test_skips_spread_and_can_be_followed(carrier: Carrier) -> None:
    steps = {
        "a": say(1, when="input.no"),
        "b": say(2, needs=["a"]),
        "c": say(3, needs=[{"step": "b", "on": "skipped"}]),
    }
    run = ran(carrier, steps, {"no": False})
    assert output(run) == {"c": 3}


def router(**more: Any) -> dict[str, Any]:
    routes = [
        {"id": "low", "to": ["lo"], "when": "input.n < 10"},
        {"id": "even", "to": ["ev"], "when": "input.n % 2 == 0"},
        {"id": "other", "to": ["ot"]},
    ]
    return {"type": "router", "routes": routes, "default": "other", "input": {}, **more}


TARGETS = {"lo": say("lo"), "ev": say("ev"), "ot": say("ot")}


@pytest.mark.parametrize(
    ("mode", "n", "expected"),
    [
        ("first", 4, {"lo": "lo"}),
        ("first", 12, {"ev": "ev"}),
        ("all", 4, {"lo": "lo", "ev": "ev"}),
        ("all", 13, {"ot": "ot"}),
    ],
)
def test_rules_choose_the_first_or_all_that_hold_else_the_default(
    carrier: Carrier, mode: str, n: int, expected: Any
) -> None:
    run = ran(carrier, {"r": router(mode=mode), **TARGETS}, {"n": n})
    assert output(run) == expected
    assert set(payload(run, "router.decided")["routes"]) == set(step(run, "r").output["routes"])


def test_scores_choose_the_highest_threshold_that_is_reached(carrier: Carrier) -> None:
    routes = [
        {"id": "lo", "to": ["lo"], "at_least": 0},
        {"id": "hi", "to": ["ev"], "at_least": 0.8},
        {"id": "none", "to": ["ot"]},
    ]
    scored = router(strategy="score", value="input.n", routes=routes, default="none")
    for n, expected in ((0.9, {"ev": "ev"}), (0.1, {"lo": "lo"}), (-1, {"ot": "ot"})):
        assert output(ran(carrier, {"r": scored, **TARGETS}, {"n": n})) == expected


def test_a_route_not_chosen_is_a_dead_edge_and_strict_minds_it(carrier: Carrier) -> None:
    both = {"z": say("z", needs=["lo", "ev"]), "s": say("s", needs=["lo", "ev"], join="strict")}
    run = ran(carrier, {"r": router(), **TARGETS, **both}, {"n": 4})
    assert output(run) == {"z": "z"}
    assert steps_of(run)["s"] == "skipped"


def test_a_join_of_any_starts_with_the_first_and_cancels_the_late(carrier: Carrier) -> None:
    steps = {
        "fast": say("fast"),
        "slow": {"type": "wait", "signal": "never"},
        "slower": say(1, needs=["slow"]),
        "z": say("z", needs=["fast", "slower"], join="any", late="cancel"),
    }
    run = ran(carrier, steps)
    assert output(run) == {"z": "z"}
    assert (steps_of(run)["slow"], steps_of(run)["slower"]) == ("cancelled", "cancelled")


def test_at_least_two_of_three_is_enough_and_one_is_not(carrier: Carrier) -> None:
    def steps(*broken: str) -> dict[str, Any]:
        three = {key: fail() if key in broken else say(key) for key in "abc"}
        rescue = {"ra": say(0, needs=[{"step": key, "on": "failed"} for key in broken])}
        needs = list("abc")
        z = say("z", needs=needs, join={"at_least": 2})
        return {**three, **(rescue if broken else {}), "z": z}

    assert output(ran(carrier, steps("a")))["z"] == "z"
    run = ran(carrier, steps("a", "b"))
    assert "z" not in output(run)
    assert steps_of(run)["z"] == "skipped"


def test_a_fallback_stands_for_its_owner(carrier: Carrier) -> None:
    steps = {
        "a": fail(fallback="f"),
        "f": say({"n": 8}),
        "z": say("${{ steps.a.output.n }}", needs=["a"]),
    }
    run = ran(carrier, steps)
    assert output(run) == {"z": 8}
    assert (step(run, "a").state, step(run, "a").covered_by) == ("failed", "f")


def test_a_chain_of_fallbacks_stands_for_the_first(carrier: Carrier) -> None:
    steps = {
        "a": fail(fallback="f"),
        "f": fail(fallback="g"),
        "g": say({"n": 9}),
        "z": say("${{ steps.a.output.n + steps.f.output.n }}", needs=["a"]),
    }
    assert output(ran(carrier, steps)) == {"z": 18}


def test_a_fallback_that_fails_too_leaves_it_to_the_policy(carrier: Carrier) -> None:
    run = ran(carrier, {"a": fail(fallback="f"), "f": fail(), "z": say(1, needs=["a"])})
    assert state(run) == "failed"
    assert steps_of(run)["z"] == "cancelled"


def test_an_unused_fallback_is_skipped(carrier: Carrier) -> None:
    run = ran(carrier, {"a": say(1, fallback="f"), "f": say(2)})
    assert output(run) == {"a": 1}
    assert steps_of(run)["f"] == "skipped"


def test_an_optional_failure_counts_as_skipped(carrier: Carrier) -> None:
    run = ran(carrier, {"a": fail(optional=True), "b": say(2), "z": say("z", needs=["a", "b"])})
    assert output(run) == {"z": "z"}
    assert step(run, "a").state == "skipped"
    assert step(run, "a").error["class"] == "permanent"


def test_an_optional_failure_by_its_condition_counts_as_skipped_too(carrier: Carrier) -> None:
    steps = {"a": say(1), "b": say(2, needs=["a"], when="input.missing.deep", optional=True)}
    run = ran(carrier, steps)
    assert state(run) == "completed"
    assert step(run, "b").state == "skipped"


def test_on_error_continue_completes_with_warnings(carrier: Carrier) -> None:
    steps = {"a": fail(), "z": say("${{ has(steps.a.output) }}", needs=["a"])}
    run = ran(carrier, steps, on_error="continue")
    assert output(run) == {"z": False}
    assert [warning["step"] for warning in run.warnings] == ["a"]


def test_an_unhandled_failure_fails_the_run_and_cancels_what_lies_behind(
    carrier: Carrier,
) -> None:
    steps = {
        "a": fail(),
        "b": say(1, needs=["a"]),
        "waits": {"type": "wait", "signal": "never"},
    }
    run = ran(carrier, steps, max_parallel=2)
    assert (state(run), error(run)["class"]) == ("failed", "permanent")
    assert steps_of(run) == {"a": "failed", "b": "cancelled", "waits": "cancelled"}
    assert payload(run, "run.failed")["step"] == "a"


def test_a_condition_that_errs_fails_its_owner(carrier: Carrier) -> None:
    for step_ in (
        say(1, needs=["a"], when="input.gone.x"),
        say(1, needs=["a"], when="1 + 1"),
        say(1, needs=[{"step": "a", "when": "output.gone"}]),
        say("${{ input.gone }}", needs=["a"]),
    ):
        run = ran(carrier, {"a": say({}), "b": step_})
        assert (state(run), error(run)["class"]) == ("failed", "condition_error")
        assert step(run, "b").state == "failed"


def test_an_output_that_cannot_be_evaluated_fails_the_run(carrier: Carrier) -> None:
    run = ran(carrier, {"a": say({})}, output="${{ steps.a.output.gone }}")
    assert (state(run), error(run)["class"]) == ("failed", "condition_error")
    assert events(run)[-1] == "run.failed"


@pytest.mark.parametrize("kind", ["nul", "key", "surrogate", "nan", "set", "huge"])
def test_an_output_that_is_no_json_is_a_schema_error(carrier: Carrier, kind: str) -> None:
    odd = {"type": "tool", "tool": "probe.odd", "input": {"kind": kind}, **NO_RETRY}
    run = ran(carrier, {"a": odd})
    assert (state(run), error(run)["class"]) == ("failed", "schema_error")


@pytest.mark.parametrize(("kind", "value"), [("exact", 2**63 - 1), ("past_double", 2**53 + 1)])
def test_large_integers_stay_exact(carrier: Carrier, kind: str, value: int) -> None:
    odd = {"type": "tool", "tool": "probe.odd", "input": {"kind": kind}}
    steps = {"a": odd, "z": say("${{ steps.a.output }}", needs=["a"])}
    assert output(ran(carrier, steps)) == {"z": value}


def test_the_summary_tells_the_route(carrier: Carrier) -> None:
    run = ran(carrier, {"a": say(1), "b": say(2, needs=["a"]), "c": say(3, needs=["b"])})
    summary = payload(run, "run.completed")["summary"]
    assert summary["route"] == ["a", "b", "c"]
    assert (summary["retries"], summary["waits"]) == (0, 0)


def test_history_numbers_are_gapless_and_each_move_has_its_event(carrier: Carrier) -> None:
    run = ran(carrier, {"a": say(1), "b": say(2, needs=["a"])})
    assert events(run) == [
        "run.started",
        "step.ready",
        "step.started",
        "step.completed",
        "step.ready",
        "step.started",
        "step.completed",
        "run.completed",
    ]


def test_a_run_of_nothing_but_skips_completes_at_birth(carrier: Carrier) -> None:
    run = ran(carrier, {"a": say(1, when="input.no")}, {"no": False})
    assert output(run) == {}
    assert carrier.sent == []
