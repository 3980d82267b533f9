"""``compensate_step``: one finished step undone by repair, once, and the run is where it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from orchestrator import engine
from orchestrator.core.errors import NotFound, StateConflict
from orchestrator.models import DeadLetter, Effect, Event, Repair, Run
from tests.engine import probes
from tests.engine.carrier import Carrier
from tests.engine.runs import (
    count,
    error,
    events,
    fail,
    hook,
    payload,
    ran,
    say,
    state,
    step,
    steps_of,
)
from tests.engine.test_concurrency import all_at_once
from tests.engine.test_repair import broken_until_mended, refusal, repair
from tests.engine.test_undoing import ends, undoing

Turn = Callable[[float], None]
WAIT = {"type": "wait", "signal": "go"}


def undo(run: Run, key: str, **more: Any) -> engine.RepairReport:
    return repair(run, "compensate_step", key, **more)


def refused(run: Run, key: str, **more: Any) -> str:
    return refusal(run, "compensate_step", key, **more)


def shop(carrier: Carrier, **more: Any) -> Run:
    """A completed run: a charge that can be refunded, and a mail that cannot be called back."""
    refund = {"tool": "probe.count", "input": {"name": "refund"}, "effect": {"key": "refund:1"}}
    return ran(
        carrier,
        {
            "charge": count("charge", {"external_ref": "P1"}, effect={"key": "pay:1"})
            | {"compensate": refund},
            "mail": count("mail", needs=["charge"], effect={"key": "mail:1"}),
        },
        **more,
    )


def test_a_step_of_a_completed_run_is_undone_and_the_run_is_completed_as_before(
    carrier: Carrier, fusion: bool, turn_time: Turn
) -> None:
    run = shop(carrier)
    before = Run.objects.get(pk=run.pk)
    turn_time(3600)
    report = undo(run, "charge")
    assert (report.state, report.undoes, report.stays) == ("compensating", ["charge"], ["mail"])
    assert state(run) == "compensating"
    carrier.run_all()
    after = Run.objects.get(pk=run.pk)
    assert (after.state, after.compensation) == ("completed", "full")
    assert (after.output, after.outcome, after.error) == (before.output, "succeeded", None)
    assert after.finished_at == before.finished_at
    assert probes.calls == {"charge": 1, "mail": 1, "refund": 1}
    assert step(run, "charge").state == "compensated"
    assert Effect.objects.get(idempotency_key="refund:1").status == "applied"
    assert events(run).count("run.completed") == 1
    assert payload(run, "compensation.finished") == {"state": "completed", "compensation": "full"}


def test_the_act_is_audited_in_the_same_transaction_and_done_once_for_its_token(
    carrier: Carrier,
) -> None:
    run = shop(carrier)
    first = undo(run, "charge", token="t1")
    again = undo(run, "charge", token="t1")
    assert (again.replayed, again.undoes, first.replayed) == (True, ["charge"], False)
    audit = Repair.objects.get(run=run)
    assert (audit.action, audit.step, audit.role) == ("compensate_step", "charge", "operator")
    assert payload(run, "repair.compensate_step")["reason"] == "mended"
    carrier.run_all()
    assert probes.calls["refund"] == 1


def test_a_preview_names_what_is_undone_and_writes_nothing(carrier: Carrier) -> None:
    run = shop(carrier)
    n_events = Event.objects.filter(run_id=run.pk).count()
    report = undo(run, "charge", preview=True)
    assert (report.undoes, report.stays, report.preview) == (["charge"], ["mail"], True)
    assert report.effects == {
        "found": [],
        "called": ["refund:1"],
        "looked_up": [],
        "undone": ["pay:1"],
    }
    assert report.cost_microusd == 0
    assert (state(run), Repair.objects.count()) == ("completed", 0)
    assert Event.objects.filter(run_id=run.pk).count() == n_events


def test_what_was_undone_is_not_undone_again(carrier: Carrier) -> None:
    run = shop(carrier)
    undo(run, "charge")
    assert refused(run, "charge", token="2") == "state_conflict"
    carrier.run_all()
    assert refused(run, "charge", token="3") == "compensated"


def test_of_two_operators_at_once_one_acts_and_the_other_is_told(carrier: Carrier) -> None:
    run = shop(carrier)
    version = Run.objects.get(pk=run.pk).version

    def act(name: str) -> str:
        try:
            undo(run, "charge", token=name, expected_version=version)
        except StateConflict as conflict:
            return conflict.code
        return "done"

    answers = all_at_once([lambda n=n: act(n) for n in ("one", "two")])
    assert sorted(answers) == ["done", "stale_version"]
    carrier.run_all()
    assert probes.calls["refund"] == 1


@pytest.mark.parametrize(
    ("key", "code"), [("plain", "no_compensation"), ("final", "no_compensation")]
)
def test_a_step_that_cannot_be_undone_says_so(carrier: Carrier, key: str, code: str) -> None:
    run = ran(carrier, {"plain": say(1), "final": say(2, irreversible=True)})
    assert refused(run, key) == code


def test_only_a_completed_step_is_undone(carrier: Carrier) -> None:
    run = ran(carrier, {"a": fail(**undoing("a")), "b": say(1, needs=["a"], **undoing("b"))})
    assert refused(run, "a") == "not_completed"
    assert refused(run, "b") == "not_completed"
    with pytest.raises(NotFound):
        undo(run, "undo:a")


def test_a_run_that_goes_on_is_paused_first(carrier: Carrier) -> None:
    run = ran(carrier, {"a": say(1, **undoing("a")), "w": {**WAIT, "needs": ["a"]}})
    assert refused(run, "a") == "state_conflict"


def test_steps_built_on_it_are_undone_first_or_with_it(carrier: Carrier) -> None:
    steps = {
        "a": say(1, **undoing("a")),
        "b": say(2, needs=["a"], **undoing("b")),
        "c": say(3, needs=["a"], **undoing("c")),
        "d": say(4, needs=["b", "c"], **undoing("d")),
    }
    run = ran(carrier, steps)
    assert refused(run, "a") == "undo_first"
    report = undo(run, "b", with_dependents=True)
    assert report.undoes == ["b", "d"]
    carrier.run_all()
    assert list(probes.calls) == ["undo d", "undo b"]
    assert (state(run), ends(run)) == ("completed", "partial")
    undo(run, "a", with_dependents=True, token="rest")
    carrier.run_all()
    assert list(probes.calls) == ["undo d", "undo b", "undo c", "undo a"]
    assert (state(run), ends(run)) == ("completed", "full")


def test_a_compensation_that_failed_is_tried_again(carrier: Carrier, fusion: bool) -> None:
    mend = broken_until_mended("undo")
    steps = {
        "a": say(1, compensate={"tool": "probe.hook", "input": {"name": "undo"}}),
        "z": fail(needs=["a"]),
    }
    run = ran(carrier, steps)
    assert (state(run), ends(run)) == ("failed", "partial")
    assert DeadLetter.objects.get(reason="compensation").retried_at is None
    mend()
    before = error(run)
    report = undo(run, "a")
    assert (report.reruns, report.starts) == (["undo:a"], ["undo:a"])
    assert DeadLetter.objects.get(reason="compensation").retried_at is not None
    carrier.run_all()
    assert (state(run), ends(run), error(run)) == ("failed", "full", before)
    assert events(run).count("run.failed") == 1


def test_a_compensation_that_fails_again_leaves_the_run_as_it_was(carrier: Carrier) -> None:
    undo_block = {"compensate": {"tool": "probe.fail", "input": {"kind": "permanent"}}}
    run = ran(carrier, {"a": say(1, **undo_block)})
    undo(run, "a")
    carrier.run_all()
    assert (state(run), ends(run), step(run, "a").state) == ("completed", "partial", "completed")
    assert DeadLetter.objects.get().reason == "compensation"
    undo(run, "a", token="again")
    carrier.run_all()
    assert DeadLetter.objects.filter(retried_at=None).count() == 1


def test_a_step_of_a_paused_run_is_undone_and_the_run_stays_paused(carrier: Carrier) -> None:
    steps = {
        "a": say(1, **undoing("a")),
        "b": say(2),
        "w": {**WAIT, "needs": ["b"]},
    }
    run = ran(carrier, steps)
    engine.pause_run(run.pk, actor="me", reason="look")
    undo(run, "a")
    carrier.run_all()
    assert (state(run), steps_of(run)["a"]) == ("paused", "compensated")
    engine.resume_run(run.pk, actor="me", reason="")
    engine.send_signal(run.pk, name="go", signal_id="1", payload=1, actor="me")
    carrier.run_all()
    assert (state(run), ends(run)) == ("completed", "full")


def test_a_paused_run_does_not_go_on_from_what_was_undone(carrier: Carrier) -> None:
    run = ran(carrier, {"a": say(1, **undoing("a")), "w": {**WAIT, "needs": ["a"]}})
    engine.pause_run(run.pk, actor="me", reason="")
    undo(run, "a")
    carrier.run_all()
    with pytest.raises(StateConflict) as told:
        engine.resume_run(run.pk, actor="me", reason="")
    assert told.value.code == "compensated"
    assert refusal(run, "resume", "w") == "compensated"
    engine.cancel_run(run.pk, actor="me", reason="")
    carrier.run_all()
    assert (state(run), ends(run), probes.calls["undo a"]) == ("cancelled", "full", 1)


def test_a_step_that_was_undone_is_not_retried(carrier: Carrier) -> None:
    """Its effect's key is used for ever: the same key would find the old receipt."""
    steps = {
        "a": count("a", effect={"key": "pay:1"}, **undoing("a")),
        "b": fail(needs=["a"], on_error="pause"),
    }
    run = ran(carrier, steps)
    assert state(run) == "paused"
    undo(run, "a")
    carrier.run_all()
    assert refusal(run, "resume", "a") == "compensated"
    assert refusal(run, "retry_step", "b") == "compensated"


def test_a_step_behind_that_is_at_work_is_waited_for(carrier: Carrier) -> None:
    seen: list[str] = []
    probes.hooks["look"] = lambda ctx: seen.append(refused_while_running())
    steps = {"a": say(1, **undoing("a")), "b": hook("look", needs=["a"])}

    def refused_while_running() -> str:
        run = Run.objects.get()
        engine.pause_run(run.pk, actor="me", reason="")
        return refused(run, "a")

    ran(carrier, steps)
    assert seen == ["still_under_way"]


def test_an_effect_in_doubt_behind_it_is_settled_first(carrier: Carrier) -> None:
    probes.hooks["pay"] = lambda ctx: (_ for _ in ()).throw(TimeoutError("gone"))
    steps = {
        "a": say(1, **undoing("a")),
        "b": hook("pay", needs=["a"], effect={"key": "pay:1"}),
    }
    run = ran(carrier, steps)
    engine.pause_run(run.pk, actor="me", reason="")
    assert refused(run, "a") == "effect_in_doubt"


def test_a_cancel_while_a_step_is_undone_undoes_all_of_it(carrier: Carrier) -> None:
    steps = {
        "a": say(1, **undoing("a")),
        "b": say(2, **undoing("b")),
        "w": {**WAIT, "needs": ["b"]},
    }
    run = ran(carrier, steps)
    engine.pause_run(run.pk, actor="me", reason="")
    undo(run, "a")
    engine.cancel_run(run.pk, actor="me", reason="")
    carrier.run_all()
    assert (state(run), ends(run)) == ("cancelled", "full")
    assert probes.calls == {"undo a": 1, "undo b": 1}


@pytest.mark.parametrize("act", [engine.cancel_run, engine.pause_run, engine.resume_run])
def test_a_run_that_is_over_is_not_steered_while_a_step_of_it_is_undone(
    carrier: Carrier, act: Callable[..., None], turn_time: Turn
) -> None:
    run = shop(carrier, timeout="1h")
    undo(run, "charge")
    with pytest.raises(StateConflict):
        act(run.pk, actor="me", reason="")
    turn_time(4000)
    engine.beat_once()
    carrier.run_all()
    assert (state(run), ends(run)) == ("completed", "full")


def test_lost_messages_only_delay_it(carrier: Carrier, turn_time: Turn) -> None:
    run = shop(carrier)
    undo(run, "charge")
    carrier.messages.clear()
    turn_time(61)
    engine.beat_once()
    carrier.run_all()
    assert (state(run), probes.calls["refund"]) == ("completed", 1)
