"""Where two features meet: the places that no single construct's test would find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from approvals_app.decisions import decide, parse_body
from approvals_app.models import Request
from approvals_app.policy import Person
from orchestrator import engine
from orchestrator.core.errors import InvalidRequest
from orchestrator.models import Run
from tests.engine import probes
from tests.engine.carrier import Carrier
from tests.engine.runs import (
    TENANT,
    count,
    error,
    events,
    fail,
    hook,
    output,
    ran,
    registered,
    say,
    start,
    started,
    state,
    step,
    steps_of,
)

Turn = Callable[[float], None]
GATE = {"type": "human_gate", "assignees": ["role:finance"]}
GO = {"type": "wait", "signal": "go"}
FIRE = {"type": "wait", "signal": "fire"}


def fire(run_id: Any) -> None:
    engine.send_signal(run_id, name="fire", signal_id="1", payload=None, actor="me")


def test_a_loop_may_be_a_fallback(carrier: Carrier) -> None:
    loop = {**say("${{ item }}"), "for_each": {"items": [1, 2]}}
    steps = {"a": fail(fallback="f"), "f": loop, "z": say("${{ steps.a.output }}", needs=["a"])}
    assert output(ran(carrier, steps)) == {"z": [1, 2]}


def test_a_wait_may_be_a_fallback(carrier: Carrier) -> None:
    run = ran(
        carrier, {"a": fail(fallback="f"), "f": GO, "z": say("${{ steps.a.output }}", needs=["a"])}
    )
    engine.send_signal(run.pk, name="go", signal_id="1", payload=6, actor="me")
    carrier.run_all()
    assert output(run) == {"z": 6}


def test_a_loop_that_gives_up_has_a_fallback(carrier: Carrier) -> None:
    loop = {**fail(fallback="f"), "for_each": {"items": [1, 2]}}
    steps = {"a": loop, "f": say(3), "z": say("${{ steps.a.output }}", needs=["a"])}
    assert output(ran(carrier, steps)) == {"z": 3}


def test_conditions_see_the_output_that_covers_a_failure(carrier: Carrier) -> None:
    steps = {
        "a": fail(fallback="f"),
        "f": say({"n": 4}),
        "big": say(1, needs=[{"step": "a", "when": "output.n > 3"}]),
        "merged": {"type": "tool", "tool": "probe.only", "needs": ["a", "big"], "merge": "list"},
    }
    assert output(ran(carrier, steps)) == {"merged": [{"n": 4}, 1]}


def test_merge_first_counts_a_covered_step(carrier: Carrier) -> None:
    router = {
        "type": "router",
        "routes": [{"id": "r", "to": []}],
        "default": "r",
        "needs": ["a", "late"],
        "merge": "first",
    }
    steps = {"a": fail(fallback="f"), "f": say(1), "late": say(2, needs=["a"]), "z": router}
    run = ran(carrier, steps)
    assert step(run, "z").input == 1


def test_a_failure_cancels_items_that_wait(carrier: Carrier) -> None:
    steps = {"a": {**GO, "for_each": {"items": [1, 2, 3]}}, "b": fail(needs=["c"]), "c": FIRE}
    run = ran(carrier, steps)
    fire(run.pk)
    carrier.run_all()
    assert state(run) == "failed"
    assert steps_of(run)["a"] == "cancelled"
    assert steps_of(run)["a[1]"] == "cancelled"


def test_cancelling_in_the_middle_of_a_loop_starts_no_more_items(
    carrier: Carrier, one_by_one: None
) -> None:
    loop = hook("cancel", "${{ item }}", for_each={"items": [1, 2, 3, 4], "max_parallel": 2})
    run_id = started({"a": loop, "z": count("z", needs=["a"])})
    ran_items: list[int] = []

    def cancel(ctx: Any) -> None:
        ran_items.append(1)
        if len(ran_items) == 2:
            engine.cancel_run(run_id, actor="me", reason="enough")

    probes.hooks["cancel"] = cancel
    carrier.run_all()
    assert (state(run_id), len(ran_items)) == ("cancelled", 2)
    assert step(run_id, "a").state == "cancelled"


def family(kid: dict[str, Any], parent: dict[str, Any], **more: Any) -> Any:
    small = registered(kid, name="kid")
    return start(registered(parent, pins={"kid": small.digest}, **more))


CHILD = {"type": "sub_workflow", "workflow": "kid", "input": {}}


def test_a_failure_beside_it_cancels_a_child(carrier: Carrier) -> None:
    run_id = family({"k": GO}, {"p": CHILD, "a": FIRE, "b": fail(needs=["a"])})
    carrier.run_all()
    fire(run_id)
    carrier.run_all()
    assert (state(run_id), step(run_id, "p").state) == ("failed", "cancelled")
    assert Run.objects.get(parent_id=run_id).state == "cancelled"


def test_a_run_out_of_time_cancels_its_child(carrier: Carrier, turn_time: Turn) -> None:
    run_id = family({"k": GO}, {"p": CHILD}, timeout="1h")
    carrier.run_all()
    turn_time(3601)
    engine.beat_once()
    assert state(run_id) == "timed_out"
    assert Run.objects.get(parent_id=run_id).state == "cancelled"


def test_a_childs_end_reaches_a_paused_parent(carrier: Carrier) -> None:
    run_id = family({"k": GO}, {"p": CHILD, "z": say(1, needs=["p"])})
    carrier.run_all()
    engine.pause_run(run_id, actor="me", reason="")
    kid = Run.objects.get(parent_id=run_id)
    engine.send_signal(kid.pk, name="go", signal_id="1", payload=1, actor="me")
    carrier.run_all()
    assert (state(run_id), step(run_id, "p").state) == ("paused", "completed")
    engine.resume_run(run_id, actor="me", reason="")
    carrier.run_all()
    assert state(run_id) == "completed"


def test_a_decision_may_come_while_the_gate_is_still_being_opened(
    carrier: Carrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the request's commit and the settle that parks the step."""
    run_id = started({"g": GATE, "z": say("${{ steps.g.output.by }}", needs=["g"])})

    def press(name: str) -> None:
        request = Request.objects.filter(run_id=run_id, state="open").first()
        if name == "performed" and request is not None:
            person = Person(actor="user:ann", roles=frozenset({"finance"}))
            body = parse_body({"decision": "approve"})
            decide(request.pk, body, tenant=TENANT, person=person)

    monkeypatch.setattr("orchestrator.engine.steps.crash_point", press)
    carrier.run_all()
    assert output(run_id) == {"z": "user:ann"}
    assert events(run_id, "g").count("gate.decided") == 1


def test_a_gates_key_is_no_signal_that_goes_around_its_people(carrier: Carrier) -> None:
    """FORMAT section 4: who may decide may signal; the approvals know who that is."""
    run = ran(carrier, {"g": GATE})
    with pytest.raises(InvalidRequest):
        engine.send_signal(
            run.pk, name="g", signal_id="1", payload={"decision": "approve"}, actor="anybody"
        )
    assert state(run) == "waiting"


def test_an_executor_may_raise_anything(
    carrier: Carrier, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """What cannot be stored is still the attempt's failure, not its worker's death."""
    caplog.set_level("CRITICAL", "orchestrator.engine.work")  # xdist cannot carry such a traceback
    executors = {**settings.ORCHESTRATOR["EXECUTORS"], "wait": "tests.engine.probes.Rude"}
    settings.ORCHESTRATOR = {**settings.ORCHESTRATOR, "EXECUTORS": executors}
    run = ran(carrier, {"a": {**GO, "retry": {"max_retries": 0}}})
    assert (state(run), error(run)["class"]) == ("failed", "transient")


def test_a_long_line_of_steps_runs_to_its_end(carrier: Carrier) -> None:
    keys = [f"k{n:04}" for n in range(300)]
    steps = {key: say(n, needs=keys[n - 1 : n] if n else []) for n, key in enumerate(keys)}
    assert output(ran(carrier, steps)) == {keys[-1]: 299}


def test_a_list_beyond_the_limit_fails_for_good(carrier: Carrier, settings: Any) -> None:
    settings.ORCHESTRATOR = {**settings.ORCHESTRATOR, "MAX_ITEMS": 3}
    run = ran(carrier, {"a": say(1, for_each={"items": "${{ input.xs }}"})}, {"xs": [1, 2, 3, 4]})
    assert (state(run), error(run)["class"]) == ("failed", "permanent")
    assert step(run, "a").attempt == 1


def test_templates_in_data_are_data(carrier: Carrier) -> None:
    run = ran(carrier, {"a": say("${{ input.text }}")}, {"text": "${{ run.id }}"})
    assert output(run) == {"a": "${{ run.id }}"}


def test_a_null_output_is_an_output(carrier: Carrier) -> None:
    steps = {
        "a": say(None),
        "z": say("${{ steps.a.output == null }}", needs=[{"step": "a", "when": "output == null"}]),
    }
    assert output(ran(carrier, steps)) == {"z": True}


def test_a_repeat_whose_round_fails_is_retried_within_its_round(
    carrier: Carrier, turn_time: Turn
) -> None:
    """A retry is no round: what the last round said stays to be seen."""
    seen: list[Any] = []

    def grow(ctx: Any) -> int:
        seen.append(ctx.attempt)
        if len(seen) == 2:
            raise LookupError("once")
        return len(seen)

    probes.hooks["grow"] = grow
    repeat = {"until": "output >= 3", "max": 2}
    run = ran(carrier, {"a": hook("grow", repeat=repeat, retry={"base_delay": "0s"})})
    assert output(run) == {"a": 3}
    assert (step(run, "a").round, seen) == (2, [1, 2, 3])
