"""A child that is under way when its parent ends, or that failed, counts in its parent's saga."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from orchestrator import engine
from orchestrator.authoring import Permanent
from orchestrator.models import DeadLetter, Outbox, Run
from tests.engine import probes
from tests.engine.carrier import Carrier
from tests.engine.runs import (
    NO_RETRY,
    count,
    events,
    fail,
    hook,
    kill,
    lose,
    payload,
    registered,
    say,
    state,
    steps_of,
)
from tests.engine.test_children import begun, child, family, kids_of
from tests.engine.test_ledger import ledger
from tests.engine.test_repair import broken_until_mended, repair
from tests.engine.test_undoing import ends, undoing
from tests.engine.test_undoing_children import kid_of

Turn = Callable[[float], None]
GO: dict[str, Any] = {"type": "wait", "signal": "go"}
NEVER: dict[str, Any] = {"compensate": {"tool": "probe.fail", "input": {"kind": "permanent"}}}


def waiting_child(**k: Any) -> dict[str, Any]:
    """A child that has done something that can be undone, and waits."""
    return {"k": say(1, **(k or undoing("k"))), "w": {**GO, "needs": ["k"]}}


def parent(**more: Any) -> dict[str, Any]:
    return {"a": say(1, **undoing("a")), "p": child(needs=["a"], **more)}


def cancel(run: Run) -> None:
    engine.cancel_run(run.pk, actor="me", reason="")


def test_a_paused_child_of_which_a_step_was_undone_says_what_is_left_to_do(
    carrier: Carrier,
) -> None:
    run = begun(carrier, family(waiting_child(), parent()))
    kid = kid_of(run)
    engine.pause_run(kid.pk, actor="ann", reason="look")
    assert "run is resumed" not in engine.picture(run).why
    assert engine.picture(run).why.endswith(f"run {kid.pk}, which is paused.")
    repair(kid, "compensate_step", "k")
    carrier.run_all()
    kid.refresh_from_db()

    assert engine.picture(kid).why == (
        "Paused by ann: look. Step k was undone, so it cannot go on: cancel it."
    )
    said = "which is paused, and some of it was undone, so that it can only be cancelled."
    assert engine.picture(run).why.endswith(said)
    cancel(kid)
    carrier.run_all()
    assert (state(kid), state(run)) == ("cancelled", "failed")


# -- a child that failed ---------------------------------------------------------------------------


def failing_child(**block: Any) -> dict[str, Any]:
    return {"k": say(1, **block), "l": fail(needs=["k"])}


def test_a_failed_child_that_could_not_undo_itself_wholly_makes_its_parent_partial(
    carrier: Carrier, fusion: bool
) -> None:
    run = begun(carrier, family(failing_child(**NEVER), parent()))
    assert (state(run), ends(run), steps_of(run)["p"]) == ("failed", "partial", "failed")
    assert (kid_of(run).state, kid_of(run).compensation) == ("failed", "partial")
    assert probes.calls == {"undo a": 1}
    line = ledger(run)["p"]
    assert line.state == "not_undone"
    assert str(kid_of(run).pk) in line.why
    letter = DeadLetter.objects.get(run=run, reason="compensation")
    assert (str(letter.step), line.task) == ("undo:p", letter.pk)


def test_an_irreversible_step_of_a_failed_child_makes_its_parent_partial(carrier: Carrier) -> None:
    run = begun(carrier, family(failing_child(irreversible=True), {"p": child()}))
    assert (state(run), ends(run), ledger(run)["p"].state) == ("failed", "partial", "not_undone")


def test_a_failed_child_that_undid_itself_counts_as_undone(carrier: Carrier) -> None:
    run = begun(carrier, family(failing_child(**undoing("k")), parent()))
    assert (state(run), ends(run), steps_of(run)["p"]) == ("failed", "full", "failed")
    assert list(probes.calls) == ["undo k", "undo a"]
    assert ledger(run)["p"].state == "undone"
    assert "compensation.requested" not in events(kid_of(run))


def test_a_failed_child_that_had_done_nothing_leaves_nothing_to_undo(carrier: Carrier) -> None:
    small = {"k": fail(), "l": say(1, needs=["k"], **undoing("l"))}
    run = begun(carrier, family(small, {"p": child()}))
    assert (state(run), ends(run)) == ("failed", "none")
    repair(run, "retry_step", "p")
    assert state(run) == "running"


def test_what_a_failed_child_could_not_undo_is_tried_again_through_its_parent(
    carrier: Carrier,
) -> None:
    mend = broken_until_mended("undo")
    block = {"compensate": {"tool": "probe.hook", "input": {"name": "undo"}}}
    run = begun(carrier, family(failing_child(**block), {"p": child()}))
    assert (ends(run), ends(kid_of(run))) == ("partial", "partial")
    mend()
    repair(run, "compensate_step", "p")
    carrier.run_all()
    assert (state(run), ends(run)) == ("failed", "full")
    assert (kid_of(run).state, ends(kid_of(run))) == ("failed", "full")
    assert not DeadLetter.objects.filter(reason="compensation", retried_at=None).exists()


def test_an_earlier_child_that_stayed_partial_is_not_forgotten(carrier: Carrier) -> None:
    """The first child fails and cannot undo itself; the second completes; then the parent fails."""
    tries: list[int] = []

    def once(ctx: Any) -> None:
        tries.append(1)
        if len(tries) == 1:
            raise Permanent("the first child fails")

    def undo(ctx: Any) -> None:
        if len(tries) == 1:
            raise Permanent("and cannot be undone")

    probes.hooks |= {"once": once, "undo": undo}
    block = {"compensate": {"tool": "probe.hook", "input": {"name": "undo"}}}
    retry = {"max_retries": 1, "base_delay": "0s", "on": ["child_failed"]}
    small = {"k": say(1, **block), "l": hook("once", needs=["k"], **NO_RETRY)}
    run = begun(carrier, family(small, {"p": child(retry=retry), "z": fail(needs=["p"])}))
    assert [kid.compensation for kid in kids_of(run)] == ["partial", "full"]
    assert (state(run), ends(run)) == ("failed", "partial")


# -- a child that is under way ---------------------------------------------------------------------


def test_a_cancelled_parent_waits_until_its_child_has_undone_itself(
    carrier: Carrier, fusion: bool
) -> None:
    run = begun(carrier, family(waiting_child(), parent()))
    cancel(run)
    assert (state(run), kid_of(run).state) == ("compensating", "compensating")
    carrier.run_all()
    assert list(probes.calls) == ["undo k", "undo a"]
    assert (state(run), ends(run), steps_of(run)["p"]) == ("cancelled", "full", "cancelled")
    assert (kid_of(run).state, ends(kid_of(run))) == ("cancelled", "full")
    assert payload(run, "child.undone")["children"][0]["compensation"] == "full"
    assert ledger(run)["p"].state == "undone"


def test_what_a_cancelled_child_cannot_undo_makes_its_parent_partial(carrier: Carrier) -> None:
    run = begun(carrier, family(waiting_child(**NEVER), parent()))
    cancel(run)
    carrier.run_all()
    assert (state(run), ends(run), ends(kid_of(run))) == ("cancelled", "partial", "partial")
    assert ledger(run)["p"].state == "not_undone"
    assert probes.calls == {"undo a": 1}


def test_a_failure_beside_it_undoes_the_child_before_what_came_first(carrier: Carrier) -> None:
    steps = {**parent(), "z": {**GO, "signal": "fail", "needs": ["a"]}, "y": fail(needs=["z"])}
    run = begun(carrier, family(waiting_child(), steps))
    engine.send_signal(run.pk, name="fail", signal_id="1", payload=1, actor="me")
    carrier.run_all()
    assert (state(run), ends(run), list(probes.calls)) == ("failed", "full", ["undo k", "undo a"])


def test_a_child_that_took_too_long_is_waited_for_too(carrier: Carrier, turn_time: Turn) -> None:
    run = begun(carrier, family(waiting_child(), parent(timeout="10s", **NO_RETRY)))
    turn_time(11)
    engine.beat_once()
    carrier.run_all()
    assert (state(run), ends(run), steps_of(run)["p"]) == ("failed", "full", "timed_out")
    assert list(probes.calls) == ["undo k", "undo a"]


def test_a_parent_whose_own_time_is_over_waits_for_its_child(
    carrier: Carrier, turn_time: Turn
) -> None:
    top = registered(
        parent(), pins={"kid": registered(waiting_child(), name="kid").digest}, timeout="10s"
    )
    run = begun(carrier, top)
    turn_time(11)
    engine.beat_once()
    for _ in range(3):
        engine.beat_once()
    carrier.run_all()
    assert (state(run), ends(run)) == ("timed_out", "full")
    assert list(probes.calls) == ["undo k", "undo a"]


def test_a_running_body_of_the_child_ends_first(carrier: Carrier) -> None:
    """Its effect is known then; the parent waits until it is undone."""
    seen: list[tuple[str, str]] = []

    def cancels(ctx: Any) -> None:
        run = Run.objects.get(parent=None)
        cancel(run)
        carrier.run_all()
        seen.append((state(run), kid_of(run).state))

    probes.hooks["body"] = cancels
    run = begun(carrier, family({"k": hook("body", **undoing("k"))}, parent()))
    assert seen == [("compensating", "running")]
    assert (state(run), ends(run), list(probes.calls)) == (
        "cancelled",
        "full",
        ["undo k", "undo a"],
    )


def test_a_child_that_completed_just_before_is_undone(
    carrier: Carrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent is cancelled while the message of its child's end is on its way."""
    run = begun(carrier, family(waiting_child(), parent()))
    handle = engine.outbox.handle
    monkeypatch.setattr(engine.outbox, "handle", lambda numbers: 0)
    engine.send_signal(kid_of(run).pk, name="go", signal_id="1", payload=1, actor="me")
    assert kid_of(run).state == "completed"
    cancel(run)
    monkeypatch.setattr(engine.outbox, "handle", handle)
    engine.outbox.sweep()
    carrier.run_all()
    assert (state(run), ends(run), kid_of(run).state) == ("cancelled", "full", "completed")
    assert list(probes.calls) == ["undo k", "undo a"]


def test_each_message_between_them_may_be_left_to_the_sweep(
    carrier: Carrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begun(carrier, family(waiting_child(), parent()))
    handle = engine.outbox.handle
    monkeypatch.setattr(engine.outbox, "handle", lambda numbers: 0)
    cancel(run)
    topics: list[str] = []
    for _ in range(20):
        carrier.run_all()
        topics += Outbox.objects.order_by("id").values_list("topic", flat=True)
        handle(list(Outbox.objects.values_list("id", flat=True)))
        if state(run) == "cancelled":
            break
    assert topics == ["child.cancel", "child.undone", "child.ended"]
    assert (ends(run), list(probes.calls)) == ("full", ["undo k", "undo a"])


def test_a_message_of_its_end_handled_twice_changes_nothing(carrier: Carrier) -> None:
    run = begun(carrier, family(waiting_child(), parent()))
    row = Run.objects.get(pk=kid_of(run).pk)
    named = {"parent": str(run.pk), "parent_step": str(row.parent_step)}
    cancel(run)
    engine.tell_parent(row.pk, named)
    assert (state(run), "undo a" in probes.calls) == ("compensating", False)
    carrier.run_all()
    before = events(run)
    engine.tell_parent(row.pk, named)
    assert (ends(run), events(run)) == ("full", before)


def test_a_worker_that_dies_while_the_child_undoes_itself_is_replaced(carrier: Carrier) -> None:
    probes.hooks["die"] = probes.die
    block = {"compensate": {"tool": "probe.hook", "input": {"name": "die"}}}
    run = begun(carrier, family(waiting_child(**block), parent()))
    cancel(run)
    kill(carrier)
    carrier.run_all()
    assert (state(run), Run.objects.get(pk=run.pk).waiting_for) == ("compensating", "child")
    why = engine.picture(Run.objects.get(pk=run.pk)).why
    assert why.endswith(
        "Step p: Being undone; its compensation: waits until child workflow kid is undone."
    )
    lose(kid_of(run), "undo:k")
    probes.hooks["die"] = lambda ctx: 1
    engine.beat_once()
    carrier.run_all()
    assert (state(run), ends(run), ends(kid_of(run))) == ("cancelled", "full", "full")


def test_a_child_that_hangs_is_ended_by_its_own_time_and_its_parent_with_it(
    carrier: Carrier, turn_time: Turn
) -> None:
    """Its compensation never answers: its own time limit and retries end it, as a dead letter."""
    probes.hooks["hang"] = probes.die
    block = {
        "compensate": {
            "tool": "probe.hook",
            "input": {"name": "hang"},
            "retry": {"max_retries": 0},
        },
    }
    run = begun(carrier, family(waiting_child(**block), parent()))
    cancel(run)
    for _ in range(10):
        try:
            carrier.run_all()
        except probes.Killed:
            lose(kid_of(run), "undo:k")
        turn_time(61)
        engine.beat_once()
    assert (state(run), ends(run), ends(kid_of(run))) == ("cancelled", "partial", "partial")


def test_children_of_a_for_each_that_are_under_way_are_waited_for(carrier: Carrier) -> None:
    each = child(input={"n": "${{ item }}"}, for_each={"items": [1, 2, 3], "max_parallel": 3})
    small = {"k": count("k", **undoing("k")), "w": {**GO, "needs": ["k"], "when": "input.n > 1"}}
    run = begun(
        carrier, family(small, {"a": say(1, **undoing("a")), "p": {**each, "needs": ["a"]}})
    )
    assert [kid.state for kid in kids_of(run)] == ["completed", "waiting", "waiting"]
    cancel(run)
    carrier.run_all()
    assert (state(run), ends(run), dict(probes.calls)) == (
        "cancelled",
        "full",
        {"k": 3, "undo k": 3, "undo a": 1},
    )
    assert list(probes.calls)[-1] == "undo a"


def test_a_child_with_nothing_to_undo_is_not_waited_for(carrier: Carrier) -> None:
    run = begun(carrier, family({"w": GO}, parent()))
    cancel(run)
    carrier.run_all()
    assert (state(run), ends(run), kid_of(run).state) == ("cancelled", "full", "cancelled")
    assert "child.undone" not in events(run)


def test_grandchildren_under_way_are_waited_for(carrier: Carrier) -> None:
    low = registered({"g": say(1, **undoing("g")), "w": {**GO, "needs": ["g"]}}, name="low")
    middle_steps = {
        "m": say(1, **undoing("m")),
        "q": {"type": "sub_workflow", "workflow": "low", "input": {}, "needs": ["m"]},
    }
    middle = registered(middle_steps, name="kid", pins={"low": low.digest})
    run = begun(carrier, registered(parent(), pins={"kid": middle.digest}))
    cancel(run)
    carrier.run_all()
    assert list(probes.calls) == ["undo g", "undo m", "undo a"]
    assert (state(run), ends(run)) == ("cancelled", "full")


def test_an_optional_child_that_was_skipped_is_undone_when_its_parent_fails(
    carrier: Carrier,
) -> None:
    """Its parent went on without it; what it did is undone by itself, and waited for."""
    steps = {
        "p": child(optional=True),
        "w": {**GO, "signal": "on", "needs": [{"step": "p", "on": "any"}]},
        "z": fail(needs=["w"]),
    }
    run = begun(carrier, family(waiting_child(**NEVER), steps))
    repair(run, "skip_step", "p")
    carrier.run_all()
    engine.send_signal(run.pk, name="on", signal_id="1", payload=1, actor="me")
    carrier.run_all()
    assert (state(run), ends(run), ends(kid_of(run))) == ("failed", "partial", "partial")
