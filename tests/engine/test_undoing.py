"""Compensation, run for real: in reverse, each once, and what cannot be undone is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from orchestrator import engine
from orchestrator.authoring import ToolContext
from orchestrator.core.errors import StateConflict
from orchestrator.models import DeadLetter, Effect, Run
from tests.engine import probes
from tests.engine.carrier import Carrier
from tests.engine.runs import (
    NO_RETRY,
    count,
    error,
    events,
    fail,
    hook,
    kill,
    lose,
    payload,
    ran,
    registered,
    say,
    settle_down,
    start,
    started,
    state,
    step,
    steps_of,
)
from tests.engine.test_repair import repair

Turn = Callable[[float], None]


def undoing(name: str, **more: Any) -> dict[str, Any]:
    return {"compensate": {"tool": "probe.count", "input": {"name": f"undo {name}"}, **more}}


def ends(run: Run) -> str:
    return str(Run.objects.get(pk=run.pk).compensation)


def test_what_was_done_is_undone_in_reverse(carrier: Carrier, fusion: bool) -> None:
    steps = {
        "a": say(1, **undoing("a")),
        "b": say(2, needs=["a"], **undoing("b")),
        "c": fail(needs=["b"], **undoing("c")),
    }
    run = ran(carrier, steps)
    assert (state(run), ends(run)) == ("failed", "full")
    assert list(probes.calls) == ["undo b", "undo a"]
    assert steps_of(run)["a"] == "compensated"


def test_a_compensation_that_fails_leaves_its_step_done(carrier: Carrier) -> None:
    undo = {"compensate": {"tool": "probe.fail", "input": {"kind": "permanent"}}}
    run = ran(carrier, {"a": say(1, **undo), "b": fail(needs=["a"])})
    assert (state(run), ends(run)) == ("failed", "partial")
    assert step(run, "a").state == "completed"
    assert "compensation.failed" in events(run)


def test_a_compensation_retries_by_its_own_policy(carrier: Carrier, turn_time: Turn) -> None:
    undo = {"compensate": {"tool": "probe.fail", "input": {"times": 1, "kind": "other"}}}
    run = ran(carrier, {"a": say(1, **undo), "b": fail(needs=["a"])})
    assert state(run) == "compensating"
    settle_down(carrier, turn_time)
    assert (state(run), ends(run)) == ("failed", "full")


def test_a_cancelled_run_is_undone(carrier: Carrier) -> None:
    wait = {"type": "wait", "signal": "go", "needs": ["a"]}
    run = ran(carrier, {"a": say(1, **undoing("a")), "w": wait})
    engine.cancel_run(run.pk, actor="me", reason="")
    assert state(run) == "compensating"
    carrier.run_all()
    assert (state(run), ends(run), probes.calls["undo a"]) == ("cancelled", "full", 1)
    assert payload(run, "run.cancelled")["summary"]["compensations"] == 1


def test_a_completed_run_undoes_nothing(carrier: Carrier) -> None:
    run = ran(carrier, {"a": count("a", **undoing("a"))})
    assert (state(run), dict(probes.calls)) == ("completed", {"a": 1})


def test_an_irreversible_step_makes_it_partial(carrier: Carrier) -> None:
    steps = {
        "a": say(1, **undoing("a")),
        "b": say(2, needs=["a"], irreversible=True),
        "c": fail(needs=["b"]),
    }
    run = ran(carrier, steps)
    assert (state(run), ends(run)) == ("failed", "partial")


def test_a_worker_that_dies_while_undoing_is_replaced(carrier: Carrier) -> None:
    undo = {"compensate": {"tool": "probe.hook", "input": {"name": "die"}}}
    probes.hooks["die"] = probes.die
    run_id = started({"a": say(1, **undo), "b": fail(needs=["a"])})
    kill(carrier)
    assert state(run_id) == "compensating"
    lose(run_id, "undo:a")
    probes.hooks["die"] = lambda ctx: 1
    engine.beat_once()
    carrier.run_all()
    assert (state(run_id), step(run_id, "a").state) == ("failed", "compensated")


def test_lost_messages_only_delay_the_undoing(carrier: Carrier, turn_time: Turn) -> None:
    run_id = started({"a": say(1, **undoing("a")), "b": fail(needs=["a"])})
    while state(run_id) != "compensating":
        carrier.run_one()
    carrier.messages.clear()
    settle_down(carrier, turn_time)
    assert (state(run_id), probes.calls["undo a"]) == ("failed", 1)


# -- what is unknown is settled first --------------------------------------------------------------


def pay(tool: str = "probe.again", **more: Any) -> dict[str, Any]:
    """A payment whose provider never answers, that can be given back."""
    calls = {"type": "tool", "tool": tool, "input": {"name": "pay"}, "effect": {"key": "pay:1"}}
    return {**calls, **NO_RETRY, **undoing("pay"), **more}


def silent() -> None:
    def body(ctx: ToolContext) -> Any:
        probes.calls["pay"] += 1
        raise TimeoutError("no answer")

    probes.hooks["pay"] = body


def settle(run: Run, outcome: str) -> None:
    repair(run, "settle_effect", effect_key="pay:1", outcome=outcome, external_ref="R-1")


def test_a_payment_in_doubt_is_not_given_up_but_asked_about(carrier: Carrier) -> None:
    silent()
    run = ran(carrier, {"a": pay(), "z": fail(needs=["a"])})
    assert (state(run), Run.objects.get().waiting_for) == ("waiting", "review")
    assert step(run, "a").why.startswith("effect pay:1 is in doubt")
    assert not DeadLetter.objects.exists()
    settle(run, "applied")
    carrier.run_all()
    assert (state(run), ends(run), probes.calls["undo pay"]) == ("failed", "full", 1)


def test_one_that_was_not_taken_is_tried_again(carrier: Carrier) -> None:
    silent()
    run = ran(carrier, {"a": pay()})
    probes.hooks["pay"] = lambda ctx: {"external_ref": "R-2"}
    settle(run, "not_applied")
    carrier.run_all()
    assert (state(run), Effect.objects.get().status) == ("completed", "applied")


def test_an_unknown_effect_is_settled_before_anything_is_undone(carrier: Carrier) -> None:
    """C31: the run has failed; what may have been paid is found out first, then undone too."""
    silent()
    steps = {
        "b": say(1, **undoing("b")),
        "a": pay(needs=["b"]),
        "z": fail(needs=["b"]),
    }
    run = ran(carrier, steps)
    assert (state(run), Run.objects.get().waiting_for) == ("waiting", "review")
    assert "undo b" not in probes.calls
    settle(run, "applied")
    carrier.run_all()
    assert (state(run), ends(run)) == ("failed", "full")
    assert [name for name in probes.calls if "undo" in name] == ["undo pay", "undo b"]


def test_what_was_not_paid_in_a_run_that_fails_is_not_undone(carrier: Carrier) -> None:
    silent()
    run = ran(carrier, {"b": say(1, **undoing("b")), "a": pay(needs=["b"])})
    engine.cancel_run(run.pk, actor="me", reason="")
    assert (state(run), "undo b" in probes.calls) == ("waiting", False)
    settle(run, "not_applied")
    carrier.run_all()
    assert (state(run), ends(run), dict(probes.calls)) == (
        "cancelled",
        "full",
        {"pay": 1, "undo b": 1},
    )


@pytest.mark.parametrize(
    ("found", "expected"), [({"external_ref": "R"}, "full"), (None, "none")], ids=["taken", "not"]
)
def test_a_provider_that_can_be_asked_is_asked(carrier: Carrier, found: Any, expected: str) -> None:
    silent()
    probes.hooks["find pay"] = lambda ctx: found
    run = ran(carrier, {"a": pay("probe.known"), "z": fail(needs=["a"])})
    assert (state(run), ends(run)) == ("failed", expected)
    assert probes.calls["undo pay"] == (1 if found else 0)


def test_a_fallback_does_not_pay_while_the_first_payment_is_in_doubt(carrier: Carrier) -> None:
    silent()
    run = ran(carrier, {"a": pay(fallback="f"), "f": count("f")})
    assert (state(run), probes.calls["f"]) == ("waiting", 0)


def test_a_lost_worker_leaves_no_payment_behind(carrier: Carrier) -> None:
    """The third loss would quarantine the step; its payment may have been taken."""
    probes.hooks["pay"] = probes.die
    run_id = started({"a": pay(), "z": fail(needs=["a"])})
    for _ in range(3):
        kill(carrier)
        lose(run_id, "a")
        engine.beat_once()
    assert (state(run_id), Run.objects.get().waiting_for) == ("waiting", "review")
    settle(Run.objects.get(), "applied")
    carrier.run_all()
    assert (state(run_id), ends(Run.objects.get())) == ("failed", "full")


def test_a_doubt_that_no_compensation_hangs_on_does_not_hold_up_the_others(
    carrier: Carrier,
) -> None:
    silent()
    crm = {"type": "tool", "tool": "probe.again", "input": {"name": "pay"}, **NO_RETRY}
    crm |= {"effect": {"key": "crm:1"}, "needs": ["a"]}
    run = ran(carrier, {"a": say(1, **undoing("a")), "b": crm})
    assert (state(run), ends(run), probes.calls["undo a"]) == ("failed", "full", 1)
    assert Effect.objects.get().status == "in_doubt"


def test_a_cancel_does_not_stop_the_undoing(carrier: Carrier) -> None:
    """C30."""
    seen: list[str] = []

    def cancel(ctx: ToolContext) -> None:
        with pytest.raises(StateConflict) as refused:
            engine.cancel_run(Run.objects.get().pk, actor="me", reason="")
        seen.append(refused.value.state)

    probes.hooks["cancel"] = cancel
    between = {"compensate": {"tool": "probe.hook", "input": {"name": "cancel"}}}
    steps = {
        "a": say(1, **undoing("a")),
        "b": say(2, needs=["a"], **between),
        "c": fail(needs=["b"]),
    }
    run = ran(carrier, steps)
    assert (state(run), ends(run), seen, probes.calls["undo a"]) == (
        "failed",
        "full",
        ["failed"],
        1,
    )


# -- the output, and what is undone beside a pause -------------------------------------------------


def test_a_run_whose_output_fails_is_undone(carrier: Carrier, fusion: bool) -> None:
    run = ran(
        carrier,
        {"a": say(1, **undoing("a")), "b": say({}, needs=["a"])},
        output={"x": "${{ steps.b.output.missing }}"},
    )
    assert (state(run), ends(run), probes.calls["undo a"]) == ("failed", "full", 1)
    assert error(run)["message"].startswith("output: ")
    assert events(run).count("run.failed") == 1


def test_a_child_whose_output_fails_is_undone_before_its_parent_hears(carrier: Carrier) -> None:
    kid = registered(
        {"k": say({}, **undoing("k"))}, name="kid", output="${{ steps.k.output.missing }}"
    )
    parent = {"p": {"type": "sub_workflow", "workflow": "kid", "input": {}}}
    run_id = start(registered(parent, pins={"kid": kid.digest}))
    carrier.run_all()
    assert (state(run_id), probes.calls["undo k"]) == ("failed", 1)


def test_a_run_fails_after_a_step_was_undone_and_bodies_finish_first(carrier: Carrier) -> None:
    """What was undone during a pause does not let the saga begin while a body is at work."""
    seen: list[dict[str, int]] = []

    def fails_meanwhile(ctx: ToolContext) -> None:
        engine.cancel_run(Run.objects.get().pk, actor="me", reason="")
        carrier.run_all()
        seen.append({name: n for name, n in probes.calls.items() if n})

    probes.hooks["body"] = fails_meanwhile
    steps = {
        "a": say(1, **undoing("a")),
        "b": say(2, **undoing("b")),
        "w": {"type": "wait", "signal": "go"},
        "c": hook("body", needs=["w", "b"]),
    }
    run = ran(carrier, steps)
    engine.pause_run(run.pk, actor="me", reason="")
    repair(run, "compensate_step", "a")
    carrier.run_all()
    engine.resume_run(run.pk, actor="me", reason="")
    engine.send_signal(run.pk, name="go", signal_id="1", payload=1, actor="me")
    carrier.run_all()
    assert seen == [{"undo a": 1}]
    assert (state(run), ends(run), dict(probes.calls)) == (
        "cancelled",
        "full",
        {"undo a": 1, "undo b": 1},
    )


def test_an_effect_that_was_undone_does_not_pass_for_done_in_another_run(
    carrier: Carrier,
) -> None:
    pay = {**say({"external_ref": "R-1"}), "effect": {"key": "pay:1"}}
    first = ran(carrier, {"pay": {**pay, **undoing("pay")}, "z": fail(needs=["pay"])})
    second = ran(carrier, {"pay": pay})

    assert (state(first), ends(first)) == ("failed", "full")
    assert state(second) == "failed"
    assert error(second)["class"] == "permanent"
    assert error(second)["details"]["code"] == "effect_undone"


# -- what a repair set back ------------------------------------------------------------------------


def set_back(carrier: Carrier, **more: Any) -> Run:
    """A charge was made and its run taken back to before it; it has not been made again yet."""
    refund = {
        "tool": "probe.count",
        "input": {"name": "refund", "value": "${{ steps.charge.output.ref }}"},
        "effect": {"key": "refund:1"},
    }
    steps = {
        "charge": count("charge", {"ref": "P1"}, effect={"key": "pay:1"}, compensate=refund) | more,
        "z": fail(needs=["charge"]),
    }
    run = ran(carrier, steps, on_error="pause")
    repair(run, "resume", "charge")
    return run


def test_what_a_repair_set_back_and_nobody_did_again_is_undone(
    carrier: Carrier, fusion: bool
) -> None:
    run = set_back(carrier)
    engine.cancel_run(run.pk, actor="ann", reason="")
    carrier.run_all()

    assert (state(run), ends(run)) == ("cancelled", "full")
    assert probes.calls == {"charge": 1, "refund": 1}
    assert Effect.objects.get(idempotency_key="refund:1").response == "P1"


def test_what_a_repair_set_back_and_was_done_again_is_undone_once(carrier: Carrier) -> None:
    run = set_back(carrier)
    carrier.run_all()  # the receipt is found, and z fails again
    engine.cancel_run(run.pk, actor="ann", reason="")
    carrier.run_all()

    assert (state(run), ends(run)) == ("cancelled", "full")
    assert probes.calls == {"charge": 1, "refund": 1}
    assert steps_of(run)["charge"] == "compensated"


def test_what_cannot_be_undone_stays_a_task_though_a_repair_set_it_back(carrier: Carrier) -> None:
    steps = {"mail": count("mail", effect={"key": "mail:1"}, irreversible=True)}
    run = ran(carrier, steps | {"z": fail(needs=["mail"])}, on_error="pause")
    repair(run, "resume", "mail")
    engine.cancel_run(run.pk, actor="ann", reason="")
    carrier.run_all()

    assert (state(run), ends(run)) == ("cancelled", "partial")
    assert DeadLetter.objects.get(reason="irreversible").run_id == run.pk
