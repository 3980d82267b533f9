"""A run on paper goes where the run itself went: the same decisions over the same answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.engine import Simulation
from orchestrator.models import DeadLetter, Effect, Event, Run, Step
from tests.engine.carrier import Carrier
from tests.engine.runs import NO_RETRY, fail, output, ran, say, settle_down, start, step, steps_of
from tests.engine.runs import registered as register
from tests.simulation.papers import again, outputs, states

Turn = Callable[[float], None]
UNDO = {"compensate": {"tool": "probe.say", "input": {"value": "undone"}}}
FLOWS: dict[str, dict[str, Any]] = {
    "branches": {
        "a": say(1),
        "b": say(2, needs=["a"], when="input.go"),
        "c": say(3, needs=["a"], when="!input.go"),
        "d": say("${{ steps.a.output }}", needs=["b", "c"]),
    },
    "router": {
        "pick": {
            "type": "router",
            "strategy": "score",
            "value": "input.n",
            "routes": [
                {"id": "high", "at_least": 5, "to": ["x"]},
                {"id": "low", "at_least": 0, "to": ["y"]},
            ],
            "default": "low",
        },
        "x": say("x"),
        "y": say("y"),
        "z": say("${{ steps.x.output }}", needs=["x", "y"], when="input.n > 0"),
    },
    "items": {
        "each": say(
            "${{ {'item': item, 'index': index} }}",
            for_each={"items": "${{ input.xs }}", "max_parallel": 2},
        ),
        "sum": say("${{ steps.each.output }}", needs=["each"]),
    },
    "rounds": {
        "poll": {
            **say("${{ previous == null ? 1 : previous + 1 }}"),
            "repeat": {"until": "output >= 3", "max": 5},
        },
    },
    "fallback": {
        "try": {**fail(), "fallback": "plan_b"},
        "plan_b": say("b"),
        "after": say("${{ steps.try.output }}", needs=["try"]),
    },
    "handled": {
        "try": {**fail(), **NO_RETRY},
        "mend": say("mended", needs=[{"step": "try", "on": "failed"}]),
        "never": say("never", needs=["try"]),
    },
    "goes on": {
        "a": {**fail(), "on_error": "continue"},
        "b": say("b", needs=["a"]),
        "c": {**fail(), "optional": True, "needs": ["b"]},
        "d": say("d", needs=[{"step": "c", "on": "any"}]),
    },
    "undone": {
        "a": say(1, **UNDO),
        "b": say(2, needs=["a"], **UNDO),
        "c": {**fail(), "needs": ["b"]},
    },
    "joins": {
        "a": say(1),
        "b": {**fail(), "on_error": "continue"},
        "one": say(1, needs=["a", "b"], join="any"),
        "all": say(2, needs=[{"step": "a", "on": "failed"}, "b"], join="strict"),
    },
    "bad condition": {
        "a": say({"x": 1}),
        "b": say(1, needs=["a"], when="steps.a.output.nothing"),
    },
}
DATA = {"go": True, "n": 7, "xs": [3, 1, 2]}


@pytest.mark.parametrize("name", FLOWS)
def test_paper_goes_the_way_of_the_run(carrier: Carrier, name: str) -> None:
    run = ran(carrier, FLOWS[name], DATA)
    found = again(run)

    run.refresh_from_db()
    assert (found.state, found.outcome, found.compensation) == (
        run.state,
        run.outcome,
        run.compensation,
    )
    assert found.output == run.output
    live = {key: state for key, state in steps_of(run).items() if not key.startswith("undo:")}
    assert {k: v for k, v in states(found).items() if not k.startswith("undo:")} == live
    for row in Step.objects.filter(run=run, state="completed", scope=""):
        assert outputs(found).get(row.key) == row.output, row.key
    if name != "rounds":  # of a step's rounds only the last one's output is kept
        assert sorted(told(found)) == sorted(recorded(run))


FACTS = ("run.started", "run.completed", "run.failed", "effect.", "timer.", "step.started")


def told(found: Simulation) -> list[tuple[str, str]]:
    """The lines of the history on paper, but for facts that only live knows."""
    lines = [(line["type"], line["step"] or "") for line in found.history]
    return [line for line in lines if not line[0].startswith(FACTS)]


def recorded(run: Run) -> list[tuple[str, str]]:
    lines = Event.objects.filter(run_id=run.id).values_list("type", "step")
    return [line for line in lines if not line[0].startswith(FACTS)]


def test_a_simulation_leaves_no_trace(carrier: Carrier) -> None:
    effect = {**say(1), "effect": {"key": "one"}, **UNDO}
    run = ran(carrier, {"a": effect, "b": {**fail(), "needs": ["a"]}})
    tables = (Run, Step, Event, Effect, DeadLetter)
    before = [model.objects.count() for model in tables]
    version = Run.objects.get().version

    found = again(run)

    assert [model.objects.count() for model in tables] == before
    assert Run.objects.get().version == version
    assert len(carrier.messages) == 0
    assert [(e.step, e.key, e.course) for e in found.effects] == [("a", "one", "call")]


def test_a_child_is_played_too(carrier: Carrier, turn_time: Turn) -> None:
    child = register({"inner": {**say("${{ input.x }}"), "effect": {"key": "inner"}}}, name="child")
    steps = {
        "call": {"type": "sub_workflow", "workflow": "child", "input": {"x": 5}},
        "z": say("${{ steps.call.output.inner }}", needs=["call"]),
    }
    run_id = start(register(steps, pins={"child": child.digest}))
    settle_down(carrier, turn_time)
    run = Run.objects.get(pk=run_id)
    assert output(run) == {"z": 5}
    found = again(run)

    assert (found.state, found.output) == ("completed", {"z": 5})
    (call, _) = found.path
    assert call.source == "child"
    assert call.child is not None
    assert [(s.name, s.state, s.output) for s in call.child.path] == [("inner", "completed", 5)]
    assert [(e.step, e.key) for e in found.effects] == [("call/inner", "inner")]


def test_time_and_cost_come_from_earlier_runs(carrier: Carrier) -> None:
    steps = {
        "ask": {"type": "agent", "model": "offline:echo", "prompt": "how are you"},
        "say": say("x", needs=["ask"]),
    }
    run = ran(carrier, steps)
    fresh = again(run)  # of which the only earlier run is itself
    assert (fresh.runs, fresh.usd.unknown) == (0, ("ask",))
    assert fresh.seconds.unknown == ("ask", "say")
    others = [ran(carrier, steps) for _ in range(2)]

    found = again(run)

    assert (found.runs, found.usd.unknown, found.seconds.unknown) == (2, (), ())
    cost = step(run, "ask").cost_microusd / 1_000_000
    assert found.usd.p50 == found.usd.p95 == pytest.approx(cost)
    spans = [
        sum(
            (row.finished_at - row.started_at).total_seconds()
            for row in Step.objects.filter(run=other)
        )
        for other in others
    ]
    assert min(spans) <= found.seconds.p50 <= found.seconds.p95 <= max(spans) * 2
