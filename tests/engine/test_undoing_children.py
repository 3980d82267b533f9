"""A completed child is undone with its parent, through its own saga; crash-safe at every point."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from orchestrator import engine
from orchestrator.core.errors import StateConflict
from orchestrator.models import DeadLetter, Effect, Outbox, Run
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
    settle_down,
    state,
    step,
    steps_of,
)
from tests.engine.test_children import begun, child, family, kids_of
from tests.engine.test_repair import broken_until_mended, repair
from tests.engine.test_undoing import ends, undoing

Turn = Callable[[float], None]
FAILS = {"z": fail(needs=["p"])}


def kid_of(run: Run) -> Run:
    (kid,) = kids_of(run)
    return kid


def test_a_completed_child_is_undone_when_its_parent_fails(carrier: Carrier, fusion: bool) -> None:
    small = {"k": say(1, **undoing("k")), "l": say(2, needs=["k"], **undoing("l"))}
    parent = {"a": say(1, **undoing("a")), "p": child(needs=["a"]), **FAILS}
    run = begun(carrier, family(small, parent))
    assert list(probes.calls) == ["undo l", "undo k", "undo a"]
    assert (state(run), ends(run), steps_of(run)["p"]) == ("failed", "full", "compensated")
    kid = kid_of(run)
    assert (kid.state, kid.compensation, kid.outcome) == ("completed", "full", "succeeded")
    assert kid.output == {"l": 2}
    assert events(kid).count("run.completed") == 1
    assert payload(kid, "compensation.finished") == {"state": "completed", "compensation": "full"}
    assert payload(run, "child.undone")["children"][0]["compensation"] == "full"


def test_a_child_with_nothing_to_undo_is_left_alone(carrier: Carrier) -> None:
    run = begun(carrier, family({"k": say(1)}, {"p": child(), **FAILS}))
    assert (state(run), ends(run), steps_of(run)["p"]) == ("failed", "none", "completed")
    assert "compensation.requested" not in events(kid_of(run))
    repair(run, "retry_step", "z")
    assert state(run) == "running"


def test_a_child_that_skipped_what_could_be_undone_has_undone_it(carrier: Carrier) -> None:
    small = {"k": say(1, when="false", **undoing("k")), "l": say(2)}
    run = begun(carrier, family(small, {"p": child(), **FAILS}))
    assert (state(run), ends(run), kid_of(run).compensation) == ("failed", "full", "none")
    assert not probes.calls


def test_a_cancelled_parent_undoes_its_completed_child(carrier: Carrier) -> None:
    wait = {"w": {"type": "wait", "signal": "go", "needs": ["p"]}}
    run = begun(carrier, family({"k": say(1, **undoing("k"))}, {"p": child(), **wait}))
    engine.cancel_run(run.pk, actor="me", reason="")
    carrier.run_all()
    assert (state(run), ends(run), probes.calls["undo k"]) == ("cancelled", "full", 1)
    assert kid_of(run).state == "completed"


def test_a_child_whose_undo_fails_makes_its_parent_partial(carrier: Carrier) -> None:
    block = {"compensate": {"tool": "probe.fail", "input": {"kind": "permanent"}}}
    run = begun(carrier, family({"k": say(1, **block)}, {"p": child(), **FAILS}))
    assert (state(run), ends(run), steps_of(run)["p"]) == ("failed", "partial", "completed")
    assert kid_of(run).compensation == "partial"
    tasks = DeadLetter.objects.filter(reason="compensation").order_by("id")
    assert [str(task.step) for task in tasks] == ["undo:k", "undo:p"]
    assert str(kid_of(run).pk) in tasks[1].error["message"]


def test_an_irreversible_step_of_a_child_makes_its_parent_partial(carrier: Carrier) -> None:
    run = begun(carrier, family({"k": say(1, irreversible=True)}, {"p": child(), **FAILS}))
    assert (ends(run), kid_of(run).compensation) == ("partial", "partial")
    assert DeadLetter.objects.filter(reason="irreversible", run=kid_of(run)).count() == 1


def test_what_a_child_could_not_undo_is_tried_again_through_the_parent(carrier: Carrier) -> None:
    mend = broken_until_mended("undo")
    block = {"compensate": {"tool": "probe.hook", "input": {"name": "undo"}}}
    run = begun(carrier, family({"k": say(1, **block)}, {"p": child(), **FAILS}))
    assert ends(run) == "partial"
    mend()
    repair(run, "compensate_step", "p")
    carrier.run_all()
    assert (state(run), ends(run), kid_of(run).compensation) == ("failed", "full", "full")
    assert not DeadLetter.objects.filter(reason="compensation", retried_at=None).exists()


def test_grandchildren_are_undone_first(carrier: Carrier) -> None:
    low = registered({"g": say(1, **undoing("g"))}, name="low")
    middle_steps = {
        "m": say(1, **undoing("m")),
        "q": {"type": "sub_workflow", "workflow": "low", "input": {}, "needs": ["m"]},
    }
    middle = registered(middle_steps, name="kid", pins={"low": low.digest})
    top = registered(
        {"a": say(1, **undoing("a")), "p": child(needs=["a"]), **FAILS},
        pins={"kid": middle.digest},
    )
    run = begun(carrier, top)
    assert list(probes.calls) == ["undo g", "undo m", "undo a"]
    assert (state(run), ends(run)) == ("failed", "full")
    assert {r.compensation for r in Run.objects.all()} == {"full"}


def test_a_workflow_that_calls_itself_is_undone_all_the_way_down(carrier: Carrier) -> None:
    steps = {
        "k": count("k", **undoing("k")),
        "p": {
            "type": "sub_workflow",
            "workflow": "flow",
            "input": {"n": "${{ input.n - 1 }}"},
            "when": "input.n > 0",
            "needs": ["k"],
        },
        "z": fail(needs=[{"step": "p", "on": "any"}], when="input.n == 2"),
    }
    run = begun(carrier, registered(steps, pins={"flow": "self"}), {"n": 2})
    assert (state(run), ends(run)) == ("failed", "full")
    assert probes.calls == {"k": 3, "undo k": 3}


def test_each_child_of_a_for_each_is_undone(carrier: Carrier, fusion: bool) -> None:
    loop = child(for_each={"items": "${{ [1, 2, 3] }}"})
    small = {"k": count("k", **undoing("k"))}
    run = begun(carrier, family(small, {"p": loop, **FAILS}))
    assert (state(run), ends(run), probes.calls["undo k"]) == ("failed", "full", 3)
    assert {kid.compensation for kid in kids_of(run)} == {"full"}


def test_a_step_of_the_parent_can_be_undone_by_repair_with_its_child(carrier: Carrier) -> None:
    run = begun(carrier, family({"k": say(1, **undoing("k"))}, {"p": child()}))
    report = repair(run, "compensate_step", "p")
    assert report.undoes == ["p"]
    carrier.run_all()
    assert (state(run), ends(run), kid_of(run).compensation) == ("completed", "full", "full")


def paying(key: str, **more: Any) -> dict[str, Any]:
    """A step with an effect, and one that takes it back."""
    refund = {"tool": "probe.count", "input": {"name": "refund"}, "effect": {"key": f"back:{key}"}}
    return count("pay", effect={"key": f"pay:{key}"}, compensate=refund, **more)


def test_the_preview_lists_what_children_and_their_children_will_undo(carrier: Carrier) -> None:
    low = registered({"g": paying("g${{ input.n }}")}, name="low")
    middle = registered(
        {
            "m": paying("m"),
            "q": {"type": "sub_workflow", "workflow": "low", "input": {"n": 7}, "needs": ["m"]},
            "s": count("s", effect={"key": "stays"}, needs=["q"]),
        },
        name="kid",
        pins={"low": low.digest},
    )
    run = begun(carrier, registered({"p": child()}, pins={"kid": middle.digest}))

    seen = repair(run, "compensate_step", "p", preview=True).effects
    assert sorted(seen["undone"]) == ["pay:g7", "pay:m"]
    assert sorted(seen["called"]) == ["back:g7", "back:m"]
    repair(run, "compensate_step", "p", token="do")
    carrier.run_all()
    applied = Effect.objects.filter(idempotency_key__startswith="back:").order_by("idempotency_key")
    assert [effect.idempotency_key for effect in applied] == sorted(seen["called"])


def test_a_child_is_not_undone_behind_its_parents_back(carrier: Carrier) -> None:
    wait = {"w": {"type": "wait", "signal": "go", "needs": ["p"]}}
    run = begun(carrier, family({"k": say(1, **undoing("k"))}, {"p": child(), **wait}))
    with pytest.raises(StateConflict) as refused:
        repair(kid_of(run), "compensate_step", "k")
    assert refused.value.code == "child_run"
    engine.send_signal(run.pk, name="go", signal_id="1", payload=1, actor="me")
    repair(kid_of(run), "compensate_step", "k", token="2")
    carrier.run_all()
    assert (state(run), kid_of(run).state, ends(kid_of(run))) == ("completed", "completed", "full")


def test_a_child_that_is_undone_for_its_parent_cannot_be_steered(carrier: Carrier) -> None:
    seen: list[str] = []

    def meddle(ctx: Any) -> None:
        for act in (engine.cancel_run, engine.pause_run):
            with pytest.raises(StateConflict):
                act(kid_of(Run.objects.get(parent=None)).pk, actor="me", reason="")
            seen.append(act.__name__)

    probes.hooks["meddle"] = meddle
    block = {"compensate": {"tool": "probe.hook", "input": {"name": "meddle"}}}
    run = begun(carrier, family({"k": say(1, **block)}, {"p": child(), **FAILS}))
    assert seen == ["cancel_run", "pause_run"]
    assert (ends(run), kid_of(run).state) == ("full", "completed")


def test_a_worker_that_dies_while_a_child_is_undone_is_replaced(carrier: Carrier) -> None:
    probes.hooks["die"] = probes.die
    block = {"compensate": {"tool": "probe.hook", "input": {"name": "die"}}}
    blueprint = family({"k": say(1, **block)}, {"p": child(), **FAILS})
    run_id = engine.start_run(
        tenant=blueprint.tenant,
        blueprint=blueprint,
        workflow=blueprint.name,
        version=1,
        input={"n": 1},
        actor="user:tester",
    )
    kill(carrier)
    run = Run.objects.get(pk=run_id)
    assert (state(run), run.waiting_for, kid_of(run).state) == (
        "compensating",
        "child",
        "compensating",
    )
    lose(kid_of(run), "undo:k")
    probes.hooks["die"] = lambda ctx: 1
    engine.beat_once()
    carrier.run_all()
    assert (state(run), ends(run), ends(kid_of(run))) == ("failed", "full", "full")


def test_messages_between_them_are_rows_that_the_sweep_finds(
    carrier: Carrier, turn_time: Turn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker dies after each commit, before it handles what it has posted."""
    blueprint = family({"k": say(1, **undoing("k"))}, {"p": child(), **FAILS})
    handle = engine.outbox.handle
    monkeypatch.setattr(engine.outbox, "handle", lambda numbers: 0)
    run = begun(carrier, blueprint)
    topics: list[str] = []
    for _ in range(20):
        carrier.run_all()
        topics += Outbox.objects.values_list("topic", flat=True)
        handle(list(Outbox.objects.values_list("id", flat=True)))
        if state(run) == "failed":
            break
    assert topics == ["child.ended", "child.undo", "child.undone"]
    assert (state(run), ends(run), probes.calls["undo k"]) == ("failed", "full", 1)


def test_a_message_handled_twice_undoes_once(carrier: Carrier) -> None:
    run = begun(carrier, family({"k": say(1, **undoing("k"))}, {"p": child(), **FAILS}))
    kid, row = kid_of(run), step(run, "p")
    before = (events(run), events(kid))
    named = {"child": str(kid.pk), "parent_step": str(row.pk)}
    engine.tell_undone(run.pk, named)
    assert (events(run), events(kid)) == before
    engine.undo_child(run.pk, named)
    carrier.run_all()
    assert (ends(kid_of(run)), probes.calls["undo k"]) == ("full", 1)


def test_a_retried_childs_failed_run_is_not_waited_for(carrier: Carrier) -> None:
    mend = broken_until_mended("k")
    retry = {"max_retries": 1, "base_delay": "0s", "on": ["child_failed"]}
    probes.hooks["mend"] = lambda ctx: mend()
    small = {
        "b": say(1, **undoing("b")),
        "k": hook("k", needs=["b"], **NO_RETRY),
        "m": hook("mend", needs=[{"step": "k", "on": "failed"}]),
        "x": fail(needs=["m"]),
    }
    run = begun(carrier, family(small, {"p": child(retry=retry), **FAILS}))
    assert [kid.state for kid in kids_of(run)] == ["failed", "completed"]
    assert (state(run), ends(run), probes.calls["undo b"]) == ("failed", "full", 2)


def test_lost_messages_only_delay_it(carrier: Carrier, turn_time: Turn) -> None:
    carrier.lose, carrier.double = 0.4, 0.3
    small = {"k": say(1, **undoing("k")), "l": say(2, needs=["k"], **undoing("l"))}
    run = begun(carrier, family(small, {"p": child(), **FAILS}))
    settle_down(carrier, turn_time)
    assert (state(run), ends(run), ends(kid_of(run))) == ("failed", "full", "full")
    assert probes.calls == {"undo l": 1, "undo k": 1}
