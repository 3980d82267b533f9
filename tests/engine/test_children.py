"""Runs within runs: started by the parent's settle, told back by the outbox."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from orchestrator import engine
from orchestrator.models import Blueprint, Run
from tests.engine.carrier import Carrier
from tests.engine.runs import (
    NO_RETRY,
    error,
    events,
    fail,
    output,
    payload,
    ran,
    registered,
    say,
    start,
    state,
    step,
    steps_of,
)

Turn = Callable[[float], None]


def child(**more: Any) -> dict[str, Any]:
    return {"type": "sub_workflow", "workflow": "kid", "input": {"n": "${{ input.n }}"}, **more}


def family(kid: dict[str, Any], parent: dict[str, Any], **more: Any) -> Blueprint:
    small = registered(kid, name="kid", **more)
    return registered(parent, pins={"kid": small.digest})


def kids_of(run: Run) -> list[Run]:
    return list(Run.objects.filter(parent_id=run.pk).order_by("id"))


def begun(carrier: Carrier, blueprint: Blueprint, data: Any = None) -> Run:
    run_id = start(blueprint, {"n": 1} if data is None else data)
    carrier.run_all()
    return Run.objects.get(pk=run_id)


def test_the_childs_output_is_the_steps_output(carrier: Carrier, fusion: bool) -> None:
    blueprint = family(
        {"k": say("${{ input.n + 1 }}")},
        {"p": child(), "z": say("${{ steps.p.output.k }}", needs=["p"])},
    )
    run = begun(carrier, blueprint)
    assert output(run) == {"z": 2}
    (kid,) = kids_of(run)
    assert (kid.tenant, kid.depth, kid.correlation_id) == (run.tenant, 1, run.correlation_id)
    assert payload(run, "child.finished")["child"] == str(kid.pk)


def test_a_parent_waits_for_its_child(carrier: Carrier) -> None:
    blueprint = family({"k": {"type": "wait", "signal": "go"}}, {"p": child()})
    run = begun(carrier, blueprint)
    assert (state(run), run.waiting_for) == ("waiting", "child")
    (kid,) = kids_of(run)
    engine.send_signal(kid.pk, name="go", signal_id="1", payload=4, actor="me")
    assert output(run) == {"p": {"k": 4}}


def test_a_failed_child_fails_its_step(carrier: Carrier) -> None:
    run = begun(carrier, family({"k": fail()}, {"p": child()}))
    assert (state(run), error(run)["class"]) == ("failed", "child_failed")
    assert error(run)["details"]["child"] == str(kids_of(run)[0].pk)


def test_a_failed_child_is_tried_again_as_a_new_run_only_if_listed(carrier: Carrier) -> None:
    retry = {"max_retries": 1, "base_delay": "0s", "on": ["child_failed"]}
    run = begun(carrier, family({"k": fail()}, {"p": child(retry=retry)}))
    assert [kid.state for kid in kids_of(run)] == ["failed", "failed"]


def test_a_cancelled_parent_cancels_its_child(carrier: Carrier) -> None:
    run = begun(carrier, family({"k": {"type": "wait", "signal": "go"}}, {"p": child()}))
    engine.cancel_run(run.pk, actor="me", reason="")
    assert [kid.state for kid in kids_of(run)] == ["cancelled"]
    assert state(run) == "cancelled"


def test_a_cancelled_child_fails_its_parents_step(carrier: Carrier) -> None:
    run = begun(carrier, family({"k": {"type": "wait", "signal": "go"}}, {"p": child()}))
    engine.cancel_run(kids_of(run)[0].pk, actor="me", reason="")
    assert (state(run), error(run)["details"]["state"]) == ("failed", "cancelled")


def test_a_child_that_takes_too_long_is_cancelled(carrier: Carrier, turn_time: Turn) -> None:
    kid = {"k": {"type": "wait", "signal": "go"}}
    run = begun(carrier, family(kid, {"p": child(timeout="1h", **NO_RETRY)}))
    turn_time(3601)
    engine.beat_once()
    assert (state(run), error(run)["class"]) == ("failed", "timeout")
    assert kids_of(run)[0].state == "cancelled"


def test_a_child_that_runs_out_of_its_own_time_has_failed(
    carrier: Carrier, turn_time: Turn
) -> None:
    kid = {"k": {"type": "wait", "signal": "go"}}
    run = begun(carrier, family(kid, {"p": child()}, timeout="1h"))
    turn_time(3601)
    engine.beat_once()
    assert (state(run), error(run)["details"]["state"]) == ("failed", "timed_out")


def test_an_input_against_the_childs_schema_is_a_schema_error(carrier: Carrier) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "string"}}}
    run = begun(carrier, family({"k": say(1)}, {"p": child()}, input=schema))
    assert (state(run), error(run)["class"]) == ("failed", "schema_error")
    assert kids_of(run) == []


@pytest.mark.parametrize(("depth", "expected"), [(3, "completed"), (20, "failed")])
def test_a_workflow_may_call_itself_as_deep_as_the_limit(
    carrier: Carrier, depth: int, expected: str
) -> None:
    again = {
        "type": "sub_workflow",
        "workflow": "flow",
        "when": "input.n > 0",
        "input": {"n": "${{ input.n - 1 }}"},
    }
    run = ran(carrier, {"p": again, "k": say(1)}, {"n": depth}, pins={"flow": "self"})
    assert state(run) == expected
    deepest = Run.objects.order_by("-depth")[0].depth
    assert deepest == min(depth, 8)


def test_children_of_a_loop_come_back_in_item_order(carrier: Carrier) -> None:
    each = child(input={"n": "${{ item }}"}, for_each={"items": [3, 1, 2], "max_parallel": 2})
    run = begun(carrier, family({"k": say("${{ input.n }}")}, {"p": each}))
    assert output(run) == {"p": [{"k": 3}, {"k": 1}, {"k": 2}]}


def test_late_cancel_reaches_the_child(carrier: Carrier) -> None:
    kid = {"k": {"type": "wait", "signal": "go"}}
    steps = {"p": child(), "a": say(1), "z": say(2, needs=["p", "a"], join="any", late="cancel")}
    run = begun(carrier, family(kid, steps))
    assert output(run) == {"z": 2}
    assert steps_of(run)["p"] == "cancelled"
    assert [kid.state for kid in kids_of(run)] == ["cancelled"]
    assert "child.finished" not in events(run)


def test_a_child_that_is_not_pinned_fails_the_step_clearly(carrier: Carrier) -> None:
    run = ran(carrier, {"p": {"type": "sub_workflow", "workflow": "gone", "input": {}}})
    assert (state(run), error(run)["class"]) == ("failed", "permanent")
    assert step(run, "p").error["message"]
