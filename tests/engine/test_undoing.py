"""Compensation, run for real: in reverse, each once, and what cannot be undone is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orchestrator import engine
from orchestrator.models import Run
from tests.engine import probes
from tests.engine.carrier import Carrier
from tests.engine.runs import (
    count,
    events,
    fail,
    kill,
    lose,
    payload,
    ran,
    say,
    settle_down,
    started,
    state,
    step,
    steps_of,
)

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
