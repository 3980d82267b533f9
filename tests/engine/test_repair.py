"""Repair over the real database: narrow, once for each token, with its audit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from approvals_app.models import Request
from orchestrator import engine
from orchestrator.authoring import Permanent, ToolContext, Transient
from orchestrator.core.errors import InvalidRequest, NotFound, StateConflict
from orchestrator.models import DeadLetter, Effect, Event, Repair, Run, Timer
from tests.engine import probes
from tests.engine.carrier import Carrier
from tests.engine.runs import (
    count,
    error,
    events,
    fail,
    hook,
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
from tests.engine.test_concurrency import all_at_once

Turn = Callable[[float], None]
WAIT = {"type": "wait", "signal": "go"}


def repair(run: Run, action: str, step: str = "", **more: Any) -> engine.RepairReport:
    more.setdefault("token", f"{action} {step}")
    details = {n: more.pop(n) for n in tuple(more) if n in DETAILS}
    given = {"actor": "user:op", "role": "operator", "reason": "mended", **more}
    return engine.repair_run(run.pk, action=action, step=step, details=details, **given)


DETAILS = (
    *("from_sequence", "effect_key", "outcome", "external_ref", "output"),
    "with_dependents",
)


def refusal(run: Run, action: str, step: str = "", **more: Any) -> str:
    with pytest.raises(StateConflict) as refused:
        repair(run, action, step, **more)
    return refused.value.code


def broken_until_mended(name: str) -> Callable[[], None]:
    """A hook that fails for good until the returned function is called."""
    mended: list[bool] = []

    def body(ctx: ToolContext) -> Any:
        probes.calls[name] += 1
        if not mended:
            raise Permanent("not yet")
        return name

    probes.hooks[name] = body
    return lambda: mended.append(True)


# -- retry -----------------------------------------------------------------------------------------


def test_a_failed_run_goes_on_from_its_failed_step(carrier: Carrier, fusion: bool) -> None:
    mend = broken_until_mended("b")
    run = ran(carrier, {"a": count("a"), "b": hook("b", needs=["a"]), "c": say(3, needs=["b"])})
    assert (state(run), steps_of(run)["c"]) == ("failed", "cancelled")
    mend()
    report = repair(run, "retry_step", "b")
    assert (report.state, report.reruns, report.starts) == ("running", ["b"], ["b"])
    carrier.run_all()
    assert output(run) == {"c": 3}
    assert (probes.calls["a"], probes.calls["b"]) == (1, 2)
    assert payload(run, "run.completed")["summary"]["repairs"] == 1
    told = Event.objects.get(run_id=run.pk, type="repair.retry_step")
    assert (told.step, told.actor, told.payload["reason"]) == ("b", "user:op", "mended")
    assert error(run) is None


def test_a_retried_step_has_all_its_retries_again(carrier: Carrier, turn_time: Turn) -> None:
    retry = {"max_retries": 1, "base_delay": "1s", "on": ["transient"]}
    run = ran(carrier, {"a": fail("transient", times=3, retry=retry)})
    turn_time(10)
    engine.beat_once()
    carrier.run_all()
    assert (state(run), step(run, "a").attempt) == ("failed", 2)
    repair(run, "retry_step", "a")
    carrier.run_all()
    assert step(run, "a").state == "retrying"
    turn_time(10)
    engine.beat_once()
    carrier.run_all()
    assert (state(run), step(run, "a").attempt) == ("completed", 4)


def test_a_parallel_branch_that_waited_waits_again(carrier: Carrier) -> None:
    mend = broken_until_mended("a")
    run = ran(carrier, {"w": WAIT, "a": hook("a"), "z": say(1, needs=["w", "a"])})
    assert steps_of(run)["w"] == "cancelled"
    mend()
    repair(run, "retry_step", "a")
    carrier.run_all()
    assert (state(run), steps_of(run)["w"]) == ("waiting", "waiting")
    engine.send_signal(run.pk, name="go", signal_id="1", payload=None, actor="me")
    carrier.run_all()
    assert output(run) == {"z": 1}


def test_a_run_that_fails_again_can_be_retried_again(carrier: Carrier) -> None:
    run = ran(carrier, {"a": fail(), "b": say(1, needs=["a"])})
    for token in ("one", "two"):
        repair(run, "retry_step", "a", token=token)
        carrier.run_all()
        assert state(run) == "failed"
    assert payload(run, "run.failed")["summary"]["repairs"] == 2
    assert events(run).count("run.failed") == 3


def test_a_run_paused_by_a_failure_goes_on_by_a_retry(carrier: Carrier) -> None:
    mend = broken_until_mended("a")
    run = ran(carrier, {"a": hook("a", on_error="pause"), "b": say(1, needs=["a"])})
    assert state(run) == "paused"
    mend()
    repair(run, "retry_step", "a")
    carrier.run_all()
    assert output(run) == {"b": 1}


def test_a_paused_run_is_resumed_without_naming_a_checkpoint(carrier: Carrier) -> None:
    run = ran(carrier, {"a": fail(times=1, on_error="pause"), "b": say(1, needs=["a"])})
    assert state(run) == "paused"

    report = repair(run, "resume")
    carrier.run_all()

    assert report.action == "resume"
    assert state(run) == "completed"


def test_a_for_each_repeats_none_of_its_finished_items(carrier: Carrier) -> None:
    def each(ctx: ToolContext) -> Any:
        probes.calls["item"] += 1
        if probes.calls["item"] == 3:
            raise Permanent("the third call")
        return "done"

    probes.hooks["each"] = each
    loop = {"items": [0, 1, 2, 3], "max_parallel": 1}
    steps = {"a": hook("each", for_each=loop), "z": say("${{ steps.a.output }}", needs=["a"])}
    run = ran(carrier, steps)
    assert steps_of(run)["a[2]"] == "failed"
    report = repair(run, "retry_step", "a", scope="[2]")
    assert report.reruns == ["a"]
    carrier.run_all()
    assert output(run) == {"z": ["done"] * 4}
    assert [step(run, "a", f"[{n}]").attempt for n in range(4)] == [1, 1, 2, 1]


def test_an_item_that_did_not_fail_is_not_retried(carrier: Carrier) -> None:
    loop = {"items": [0, 1], "min_success": 2}
    _each_fails_once()
    run = ran(carrier, {"a": hook("each", for_each=loop)})
    done = Run.objects.get(pk=run.pk).steps.filter(state="completed").first()
    assert done is not None
    assert refusal(run, "retry_step", "a", scope=done.scope) == "not_failed"
    with pytest.raises(NotFound):
        repair(run, "retry_step", "a", scope="[9]")


def _each_fails_once() -> None:
    def each(ctx: ToolContext) -> Any:
        probes.calls["item"] += 1
        if probes.calls["item"] == 2:
            raise Permanent("the second call")
        return "done"

    probes.hooks["each"] = each


def test_a_failure_that_was_dealt_with_is_left_alone(carrier: Carrier) -> None:
    steps = {
        "a": fail(),
        "b": count("b", needs=[{"step": "a", "on": "failed"}]),
        "c": fail(needs=["b"]),
    }
    run = ran(carrier, steps)
    assert refusal(run, "retry_step", "a") == "failure_handled"
    assert refusal(run, "retry_step", "b") == "not_failed"


def test_a_completed_run_and_an_undone_one_are_not_taken_up(carrier: Carrier) -> None:
    done = ran(carrier, {"a": say(1)})
    assert refusal(done, "retry_step", "a") == "state_conflict"
    assert refusal(done, "resume", "a") == "state_conflict"
    undo = {"compensate": {"tool": "probe.say", "input": {"value": 1}}}
    undone = ran(carrier, {"a": say(1, **undo), "b": fail(needs=["a"])})
    assert steps_of(undone)["a"] == "compensated"
    assert refusal(undone, "retry_step", "b") == "compensated"


def test_a_run_whose_time_is_over_is_not_taken_up(carrier: Carrier, turn_time: Turn) -> None:
    run = ran(carrier, {"a": fail()}, timeout="1h")
    turn_time(3700)
    assert refusal(run, "retry_step", "a") == "time_is_over"


def test_a_child_that_has_answered_is_repaired_by_its_parent(carrier: Carrier) -> None:
    mend = broken_until_mended("c")
    child = registered({"c": hook("c")}, name="child")
    call = {"type": "sub_workflow", "workflow": "child"}
    blueprint = registered({"p": call}, pins={"child": child.digest})
    run = Run.objects.get(pk=start(blueprint))
    carrier.run_all()
    (first,) = Run.objects.filter(parent=run)
    assert (state(run), state(first)) == ("failed", "failed")
    assert refusal(first, "retry_step", "c") == "child_run"
    mend()
    repair(run, "retry_step", "p")
    carrier.run_all()
    assert state(run) == "completed"
    assert Run.objects.filter(parent=run).count() == 2


# -- once, by one, and as seen ---------------------------------------------------------------------


def test_the_same_token_does_it_once_and_answers_the_same(carrier: Carrier) -> None:
    mend = broken_until_mended("a")
    run = ran(carrier, {"a": hook("a")})
    mend()
    first = repair(run, "retry_step", "a", token="t")
    carrier.run_all()
    again = repair(run, "retry_step", "a", token="t")
    assert (first.replayed, again.replayed) == (False, True)
    assert again.stored() == first.stored()
    assert probes.calls["a"] == 2
    with pytest.raises(InvalidRequest) as other:
        repair(run, "resume", "a", token="t")
    assert other.value.code == "idempotency_key_reused"
    kept = Repair.objects.get(run=run)
    assert (kept.action, kept.actor, kept.role) == ("retry_step", "user:op", "operator")


def test_of_two_operators_one_acts_and_the_other_hears_why_not(carrier: Carrier) -> None:
    run = ran(carrier, {"a": fail(times=1)})
    calls = [lambda n=n: repair(run, "retry_step", "a", token=f"op-{n}") for n in range(2)]
    results = all_at_once(calls)
    (refused,) = [r for r in results if isinstance(r, StateConflict)]
    assert "the run is running" in str(refused)
    assert Repair.objects.filter(run=run).count() == 1
    carrier.run_all()
    assert (state(run), step(run, "a").attempt) == ("completed", 2)


def test_a_repair_of_an_older_state_is_refused(carrier: Carrier) -> None:
    run = ran(carrier, {"a": fail(times=1)})
    seen = Run.objects.get(pk=run.pk).version
    assert refusal(run, "retry_step", "a", expected_version=seen - 1) == "stale_version"
    assert repair(run, "retry_step", "a", expected_version=seen).state == "running"


def test_a_preview_says_what_would_happen_and_does_nothing(carrier: Carrier) -> None:
    effect = {"effect": {"key": "pay:1"}}
    steps = {"a": count("a", {"x": 1}, **effect), "b": fail(needs=["a"]), "c": say(1, needs=["b"])}
    run = ran(carrier, steps)
    before = list(Run.objects.filter(pk=run.pk).values())
    seen = repair(run, "resume", "a", preview=True)
    assert (seen.reruns, seen.starts, seen.preview) == (["a", "b"], ["a"], True)
    assert seen.effects == {"found": ["pay:1"], "called": [], "looked_up": [], "undone": []}
    assert seen.cost_microusd == 0
    assert list(Run.objects.filter(pk=run.pk).values()) == before
    assert not Repair.objects.exists()


# -- resume ----------------------------------------------------------------------------------------


def test_everything_behind_the_checkpoint_runs_again(carrier: Carrier, fusion: bool) -> None:
    steps = {
        "a": count("a", 1),
        "b": count("b", 2, needs=["a"]),
        "side": count("side", 3, needs=["a"]),
        "c": fail(times=1, needs=["b"]),
    }
    run = ran(carrier, steps)
    assert state(run) == "failed"
    repair(run, "resume", "b")
    carrier.run_all()
    assert state(run) == "completed"
    assert dict(probes.calls) == {"a": 1, "b": 2, "side": 1}


def test_a_finished_effect_is_found_and_not_repeated(carrier: Carrier) -> None:
    steps = {
        "a": count("pay", {"external_ref": "R-1"}, effect={"key": "pay:1"}),
        "b": fail(times=1, needs=["a"]),
        "z": say("${{ steps.a.output.external_ref }}", needs=["b"]),
    }
    run = ran(carrier, steps)
    repair(run, "resume", "a")
    carrier.run_all()
    assert output(run) == {"z": "R-1"}
    assert probes.calls["pay"] == 1
    assert "effect.found" in events(run, "a")


def test_a_resumed_run_that_fails_at_once_can_be_repaired_again(carrier: Carrier) -> None:
    broken: list[bool] = []

    def body(ctx: ToolContext) -> Any:
        if broken:
            raise Permanent("broken meanwhile")
        return "a"

    probes.hooks["a"] = body
    steps = {
        "a": hook("a"),
        "b": count("b", needs=["a"]),
        "c": say(1, needs=["b"], when="steps.b.output == null"),
        "d": fail(times=1, needs=["b", "c"]),
    }
    run = ran(carrier, steps)
    broken.append(True)
    repair(run, "resume", "a")
    carrier.run_all()
    assert (state(run), steps_of(run)["b"]) == ("failed", "cancelled")
    broken.clear()
    repair(run, "retry_step", "a")
    carrier.run_all()
    assert state(run) == "completed"
    assert (probes.calls["b"], step(run, "b").attempt) == (2, 2)


def test_a_checkpoint_may_be_a_line_of_the_history(carrier: Carrier) -> None:
    run = ran(
        carrier, {"a": count("a"), "b": count("b", needs=["a"]), "c": fail(times=1, needs=["b"])}
    )
    done = Event.objects.get(run_id=run.pk, type="step.completed", step="a").seq
    report = repair(run, "resume", from_sequence=done)
    assert report.reruns == ["b", "c"]
    carrier.run_all()
    assert (state(run), dict(probes.calls)) == ("completed", {"a": 1, "b": 2})


def test_a_checkpoint_is_named_once(carrier: Carrier) -> None:
    run = ran(carrier, {"a": fail()})
    for wrong in ({}, {"step": "a", "from_sequence": 1}, {"from_sequence": 10_000}):
        with pytest.raises(InvalidRequest):
            repair(run, "resume", **wrong)
    with pytest.raises(NotFound):
        repair(run, "resume", "nothing")


def test_a_cancelled_run_goes_on_from_its_checkpoint(carrier: Carrier) -> None:
    run = ran(carrier, {"a": say(1), "w": {**WAIT, "needs": ["a"]}, "z": say(2, needs=["w"])})
    engine.cancel_run(run.pk, actor="me", reason="")
    assert state(run) == "cancelled"
    repair(run, "resume", "w")
    carrier.run_all()
    engine.send_signal(run.pk, name="go", signal_id="1", payload=None, actor="me")
    carrier.run_all()
    assert output(run) == {"z": 2}


def test_a_shorter_list_the_second_time_leaves_no_items_of_the_first(carrier: Carrier) -> None:
    lists = [[1, 2, 3], [7]]
    probes.hooks["list"] = lambda ctx: lists.pop(0)
    steps = {
        "l": hook("list"),
        "a": say("${{ item }}", needs=["l"], for_each={"items": "${{ steps.l.output }}"}),
        "b": fail(times=1, needs=["a"]),
        "z": say("${{ steps.a.output }}", needs=["b"]),
    }
    run = ran(carrier, steps)
    repair(run, "resume", "l")
    carrier.run_all()
    assert output(run) == {"z": [7]}


def test_what_is_irreversible_and_has_no_key_is_not_repeated(carrier: Carrier) -> None:
    run = ran(carrier, {"a": say(1, irreversible=True), "b": fail(needs=["a"])})
    assert refusal(run, "resume", "a") == "irreversible"


# -- skip ------------------------------------------------------------------------------------------


def test_an_optional_step_that_waits_can_be_ended(carrier: Carrier) -> None:
    wait = {**WAIT, "optional": True, "timeout": "1h"}
    steps = {"w": wait, "z": say(1, needs=[{"step": "w", "on": "any"}])}
    run = ran(carrier, steps)
    assert Timer.objects.filter(run=run).exists()
    repair(run, "skip_step", "w")
    carrier.run_all()
    assert output(run) == {"z": 1}
    assert not Timer.objects.filter(run=run).exists()


def test_a_step_that_is_not_optional_cannot_be_skipped(carrier: Carrier) -> None:
    run = ran(carrier, {"w": WAIT})
    assert refusal(run, "skip_step", "w") == "not_optional"


def test_a_gate_that_is_skipped_is_closed_for_those_who_were_asked(carrier: Carrier) -> None:
    gate = {"type": "human_gate", "assignees": ["role:finance"], "optional": True}
    run = ran(carrier, {"g": gate, "z": say(1, needs=[{"step": "g", "on": "any"}])})
    repair(run, "skip_step", "g")
    carrier.run_all()
    assert state(run) == "completed"
    assert Request.objects.get(run_id=run.pk).state == "cancelled"


# -- effects in doubt ------------------------------------------------------------------------------


def in_doubt(carrier: Carrier, **more: Any) -> Run:
    """A run whose payment may or may not have been made."""

    def body(ctx: ToolContext) -> Any:
        probes.calls["pay"] += 1
        if probes.calls["pay"] == 1:
            raise Transient("connection lost")
        return {"external_ref": "R-2"}

    probes.hooks["pay"] = body
    pay = hook("pay", effect={"key": "pay:1"}, **more)
    run = ran(carrier, {"a": pay, "z": say("${{ steps.a.output }}", needs=["a"])})
    assert (state(run), run.waiting_for) == ("waiting", "review")
    return run


def settle(run: Run, outcome: str, **more: Any) -> engine.RepairReport:
    return repair(run, "settle_effect", effect_key="pay:1", outcome=outcome, **more)


def test_an_effect_that_was_applied_completes_its_step(carrier: Carrier) -> None:
    run = in_doubt(carrier)
    settle(run, "applied", external_ref="R-1")
    carrier.run_all()
    assert output(run) == {"z": {"external_ref": "R-1"}}
    assert probes.calls["pay"] == 1
    effect = Effect.objects.get(idempotency_key="pay:1")
    assert (effect.status, effect.external_ref) == ("applied", "R-1")
    assert "repair.settle_effect" in events(run, "a")


def test_the_output_that_is_given_is_the_steps(carrier: Carrier) -> None:
    run = in_doubt(carrier)
    settle(run, "applied", external_ref="R-1", output={"paid": True})
    carrier.run_all()
    assert output(run) == {"z": {"paid": True}}
    assert Effect.objects.get().external_ref == "R-1"


def test_an_effect_that_was_not_applied_is_called_again(carrier: Carrier) -> None:
    run = in_doubt(carrier)
    settle(run, "not_applied")
    carrier.run_all()
    assert output(run) == {"z": {"external_ref": "R-2"}}
    assert probes.calls["pay"] == 2


def test_two_people_settle_an_effect_once(carrier: Carrier) -> None:
    run = in_doubt(carrier)
    results = all_at_once(
        [
            lambda: settle(run, "applied", external_ref="R-1", token="one"),
            lambda: settle(run, "not_applied", token="two"),
        ]
    )
    assert sum(isinstance(r, StateConflict) for r in results) == 1
    carrier.run_all()
    assert state(run) == "completed"


def test_an_effect_in_doubt_is_settled_before_its_run_is_cancelled(carrier: Carrier) -> None:
    run = in_doubt(carrier)
    engine.cancel_run(run.pk, actor="me", reason="")
    assert state(run) == "waiting"  # what is unknown is settled before the run ends
    settle(run, "applied", external_ref="R-1")
    carrier.run_all()
    assert (state(run), steps_of(run)["a"]) == ("cancelled", "completed")
    assert Effect.objects.get().status == "applied"


def test_an_effect_of_a_step_that_gave_up_is_settled_without_it(carrier: Carrier) -> None:
    def body(ctx: ToolContext) -> Any:
        raise Transient("connection lost")

    probes.hooks["pay"] = body
    doubt = {"effect": {"key": "pay:1", "on_doubt": "resend"}, "retry": {"max_retries": 0}}
    run = ran(carrier, {"a": hook("pay", **doubt), "z": say(1, needs=["a"])})
    assert (state(run), Effect.objects.get().status) == ("failed", "in_doubt")
    settle(run, "applied", external_ref="R-1")
    assert (state(run), Effect.objects.get().status) == ("failed", "applied")
    repair(run, "retry_step", "a")
    carrier.run_all()
    assert output(run) == {"z": 1}


def test_an_effect_of_another_run_is_not_found(carrier: Carrier) -> None:
    in_doubt(carrier)
    other = ran(carrier, {"a": WAIT})
    with pytest.raises(NotFound):
        settle(other, "applied", external_ref="R-1")


def test_a_receipt_needs_a_reference_or_an_output(carrier: Carrier) -> None:
    run = in_doubt(carrier)
    with pytest.raises(InvalidRequest) as refused:
        settle(run, "applied")
    assert refused.value.problems[0]["pointer"] == "/external_ref"


# -- dead letters ----------------------------------------------------------------------------------


def test_a_dead_letter_is_answered_when_its_step_runs_again(carrier: Carrier) -> None:
    run = ran(carrier, {"a": fail(times=1)})
    assert DeadLetter.objects.get(run=run).retried_at is None
    repair(run, "retry_step", "a")
    assert DeadLetter.objects.get(run=run).retried_at is not None
    carrier.run_all()
    assert state(run) == "completed"
