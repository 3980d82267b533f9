"""What a for_each did is undone item by item, also where it did not complete."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from orchestrator import engine
from orchestrator.authoring import Permanent, ToolContext
from orchestrator.core.errors import StateConflict
from orchestrator.models import DeadLetter, Effect, Run, Step
from tests.engine import probes
from tests.engine.carrier import Carrier
from tests.engine.runs import (
    NO_RETRY,
    fail,
    hook,
    kill,
    lose,
    ran,
    say,
    settle_down,
    started,
    state,
    steps_of,
)
from tests.engine.test_children import begun, child, family, kids_of
from tests.engine.test_ledger import states
from tests.engine.test_repair import repair
from tests.engine.test_undoing import ends, undoing

Turn = Callable[[float], None]
REFUND: dict[str, Any] = {
    "tool": "probe.hook",
    "input": {"name": "refund", "value": "${{ [order, index, steps.a.output[index]] }}"},
    "effect": {"key": "refund:${{ order }}"},
}
"""How one item is undone: it sees the item, its index, and what it said."""


def each(items: list[Any], **more: Any) -> dict[str, Any]:
    loop = {"items": items, "as": "order", **more}
    paid = {"effect": {"key": "pay:${{ order }}"}, "compensate": REFUND, **NO_RETRY}
    return hook("pay", "${{ order }}", for_each=loop, **paid)


def order_of(ctx: ToolContext) -> str:
    return str(ctx.idempotency_key).partition(":")[2]


def provider(broken: str = "", *, refund: Callable[[str], Any] | None = None) -> list[str]:
    """Pays the orders that are not broken; those that it was asked to refund, as they come."""
    asked: list[str] = []

    def pay(ctx: ToolContext) -> Any:
        if order_of(ctx) in broken.split():
            raise Permanent(f"order {order_of(ctx)} is refused")
        return {"paid": order_of(ctx)}

    def give_back(ctx: ToolContext) -> Any:
        if refund is not None:
            refund(order_of(ctx))
        asked.append(order_of(ctx))

    probes.hooks["pay"], probes.hooks["refund"] = pay, give_back
    return asked


def items_of(run: Run, key: str) -> dict[int, str]:
    found = Step.objects.filter(run=run, key=key).exclude(index=None).order_by("index")
    return {row.index: row.state for row in found if row.index is not None}


def test_the_completed_items_of_a_failed_for_each_are_undone_each_with_its_own_key(
    carrier: Carrier, fusion: bool
) -> None:
    asked = provider("y")
    run = ran(carrier, {"a": each(["x", "y", "z"], min_success=3, max_parallel=1)})
    assert (state(run), ends(run), steps_of(run)["a"]) == ("failed", "full", "failed")
    assert asked == ["x"]
    assert items_of(run, "a")[0] == "compensated"
    assert Effect.objects.get(idempotency_key="refund:x").status == "applied"


def test_what_stayed_open_of_it_is_not_undone(carrier: Carrier) -> None:
    asked = provider("x")
    run = ran(carrier, {"a": each(list("vwxyz"), max_parallel=5)})
    assert (state(run), ends(run)) == ("failed", "full")
    assert sorted(asked) == list("vwyz")
    assert items_of(run, "a") == {n: "failed" if n == 2 else "compensated" for n in range(5)}
    assert items_of(run, "undo:a") == dict.fromkeys((0, 1, 3, 4), "completed")


def test_an_item_is_undone_over_what_it_was_and_said(carrier: Carrier) -> None:
    provider("y")
    run = ran(carrier, {"a": each(["x", "y"], max_parallel=2)})
    undo = Step.objects.get(run=run, key="undo:a", scope="[0]")
    assert undo.input == {"name": "refund", "value": ["x", 0, {"paid": "x"}]}


def test_each_item_of_a_for_each_that_completed_is_undone(carrier: Carrier, fusion: bool) -> None:
    asked = provider()
    steps = {
        "b": say(1, **undoing("b")),
        "a": {**each(["x", "y"]), "needs": ["b"]},
        "z": fail(needs=["a"]),
    }
    run = ran(carrier, steps)
    assert (state(run), ends(run), steps_of(run)["a"]) == ("failed", "full", "compensated")
    assert sorted(asked) == ["x", "y"]
    assert probes.calls["undo b"] == 1
    assert states(run, with_scope=True) == {
        "a": "undone",
        "a[0]": "undone",
        "a[1]": "undone",
        "b": "undone",
    }


def test_the_items_of_a_cancelled_for_each_are_undone(carrier: Carrier) -> None:
    """The third item has the run cancelled while its own body is at work: that finishes."""
    asked = provider()
    pay = probes.hooks["pay"]

    def cancels(ctx: ToolContext) -> Any:
        if order_of(ctx) == "x":
            engine.cancel_run(Run.objects.get().pk, actor="me", reason="")
        return pay(ctx)

    probes.hooks["pay"] = cancels
    run = ran(carrier, {"a": each(list("vwxyz"), max_parallel=1)})
    assert (state(run), ends(run), steps_of(run)["a"]) == ("cancelled", "full", "cancelled")
    assert sorted(asked) == ["v", "w", "x"]
    assert items_of(run, "a")[3] == "cancelled"


def test_items_that_wait_do_not_keep_the_others_from_being_undone(carrier: Carrier) -> None:
    wait = {"type": "wait", "signal": "go", "for_each": {"items": [1, 2]}, **undoing("w")}
    run = ran(carrier, {"w": wait})
    engine.send_signal(run.pk, name="go", signal_id="1", payload=1, actor="me")
    engine.cancel_run(run.pk, actor="me", reason="")
    carrier.run_all()
    assert (state(run), ends(run), probes.calls["undo w"]) == ("cancelled", "full", 1)


def test_a_for_each_of_which_nothing_completed_leaves_nothing_to_undo(carrier: Carrier) -> None:
    asked = provider("x y")
    run = ran(carrier, {"a": each(["x", "y"])})
    assert (state(run), ends(run), asked) == ("failed", "none", [])


def test_an_item_that_cannot_be_undone_keeps_no_other_from_it_and_makes_it_partial(
    carrier: Carrier,
) -> None:
    broken = {"is": True}

    def refund(order: str) -> None:
        if order == "x" and broken["is"]:
            raise Permanent("no refund")

    asked = provider("z", refund=refund)
    run = ran(carrier, {"a": each(list("wxyz"), max_parallel=2)})
    assert (state(run), ends(run)) == ("failed", "partial")
    assert sorted(asked) == ["w", "y"]
    assert items_of(run, "a") == {
        0: "compensated",
        1: "completed",
        2: "compensated",
        3: "failed",
    }
    letter = DeadLetter.objects.get(reason="compensation")
    assert str(letter.step) == "undo:a[1]"
    found = states(run, with_scope=True)
    assert (found["a[0]"], found["a[1]"], found["a"]) == ("undone", "not_undone", "not_undone")

    broken["is"] = False
    run.refresh_from_db()
    given = {"reason": "mended", "actor": "user:op", "role": "operator", "token": "1"}
    answer = engine.retry_letter(letter, **given, expected_version=run.version)
    assert answer.status == "retried", answer.detail
    carrier.run_all()
    assert (state(run), ends(run), steps_of(run)["a"]) == ("failed", "full", "failed")
    assert sorted(asked) == ["w", "x", "y"]
    assert not DeadLetter.objects.filter(reason="compensation", retried_at=None).exists()
    with pytest.raises(StateConflict) as refused:
        repair(run, "compensate_step", "a", token="2")
    assert refused.value.code == "compensated"


def test_a_worker_that_dies_while_an_item_is_undone_is_replaced(carrier: Carrier) -> None:
    provider("y")
    probes.hooks["refund"] = probes.die
    run_id = started({"a": each(["x", "y"], max_parallel=2)})
    kill(carrier)
    lose(run_id, "undo:a", "[0]")
    engine.beat_once()
    run = Run.objects.get(pk=run_id)
    asked = provider("y")
    carrier.run_all()
    assert (run.waiting_for, step_why(run)) == ("review", True)
    repair(run, "settle_effect", effect_key="refund:x", outcome="not_applied")
    carrier.run_all()
    assert (state(run), ends(run), len(asked)) == ("failed", "full", 1)


def step_why(run: Run) -> bool:
    row = Step.objects.get(run=run, key="undo:a", scope="[0]")
    return row.why.startswith("effect refund:x is in doubt")


def test_lost_and_doubled_messages_cost_time_only(carrier: Carrier, turn_time: Turn) -> None:
    asked = provider("z")
    run_id = started({"a": each(list("vwxyz"), max_parallel=5)})
    carrier.lose, carrier.double = 0.4, 0.3
    settle_down(carrier, turn_time)
    assert (state(run_id), len(asked)) == ("failed", 4)


def test_an_item_in_doubt_is_settled_before_its_run_is_undone(carrier: Carrier) -> None:
    """What may have been paid is found out first, for an item as for a step."""

    def silent(ctx: ToolContext) -> Any:
        if order_of(ctx) == "y":
            raise TimeoutError("no answer")
        return {"paid": order_of(ctx)}

    asked = provider()
    probes.hooks["pay"] = silent
    run = ran(carrier, {"a": each(["x", "y"])})
    assert (state(run), Run.objects.get().waiting_for) == ("waiting", "review")
    engine.cancel_run(run.pk, actor="me", reason="")
    carrier.run_all()
    assert (state(run), asked) == ("waiting", [])
    repair(run, "settle_effect", effect_key="pay:y", outcome="applied", external_ref="R")
    carrier.run_all()
    assert (state(run), ends(run)) == ("cancelled", "full")
    assert sorted(asked) == ["x", "y"]


def test_irreversible_items_of_a_failed_for_each_make_it_partial(carrier: Carrier) -> None:
    loop = {"items": [0, 1], "max_parallel": 1}
    key = {"effect": {"key": "mail:${{ item }}"}}
    sends = hook("pay", for_each=loop, irreversible=True, **key, **NO_RETRY)
    provider("1")
    run = ran(carrier, {"a": sends})
    assert (state(run), ends(run)) == ("failed", "partial")
    assert DeadLetter.objects.filter(reason="irreversible").count() == 1


def test_the_children_of_a_failed_for_each_are_undone(carrier: Carrier) -> None:
    loop = {"items": [1, 2, 3], "max_parallel": 1}
    small = {
        "k": say(1, **undoing("k")),
        "l": fail(needs=["k"], when="input.n == 3"),
    }
    each_child = child(input={"n": "${{ item }}"}, for_each=loop)
    run = begun(carrier, family(small, {"p": each_child}))
    assert (state(run), ends(run), probes.calls["undo k"]) == ("failed", "full", 3)
    assert [kid.state for kid in kids_of(run)] == ["completed", "completed", "failed"]


def test_a_paused_run_has_the_items_of_a_step_undone_and_stays_paused(carrier: Carrier) -> None:
    asked = provider()
    go = {"w": {"type": "wait", "signal": "go", "needs": ["a"]}}
    run = ran(carrier, {"a": each(["x", "y"]), **go})
    engine.pause_run(run.pk, actor="me", reason="")
    repair(run, "compensate_step", "a")
    carrier.run_all()
    assert (state(run), len(asked), steps_of(run)["a"]) == ("paused", 2, "compensated")
    with pytest.raises(StateConflict):
        engine.resume_run(run.pk, actor="me", reason="")
