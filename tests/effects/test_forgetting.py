"""Receipts are kept for ever, or for as long as the setting says.

The carrier comes last, so that it looks at the invariants while time and setting are as turned.
"""

from __future__ import annotations

from typing import Any

import pytest

from config.env import Environment
from orchestrator import engine
from orchestrator.models import Effect
from orchestrator.ops.invariants import check_runs, newest_runs
from orchestrator.tasks.housekeeping import forget
from tests.engine import probes
from tests.engine.carrier import Carrier
from tests.engine.runs import count, hook, output, ran, state

DAY = 86_400


def pay(key: str = "pay:1", **step: Any) -> dict[str, Any]:
    return count("pay", {"external_ref": "R-1"}, effect={"key": key}, **step)


def keys() -> list[str]:
    return list(Effect.objects.order_by("id").values_list("idempotency_key", flat=True))


def test_without_the_setting_receipts_are_kept_for_ever(carrier: Carrier, turn_time: Any) -> None:
    ran(carrier, {"a": pay()})
    turn_time(20 * 365 * DAY)

    forget()

    assert keys() == ["pay:1"]
    assert output(ran(carrier, {"a": pay()}))["a"] == {"external_ref": "R-1"}
    assert probes.calls["pay"] == 1


def test_only_settled_receipts_of_ended_runs_grow_old(
    options: Any, transactional_db: None, turn_time: Any, carrier: Carrier
) -> None:
    options(EFFECT_RETENTION="400d")
    wait = {"type": "wait", "signal": "go", "needs": ["a"]}
    ended = ran(carrier, {"a": pay("old")})
    waiting = ran(carrier, {"a": pay("waits"), "b": wait}, timeout="3650d")
    probes.hooks["doubt"] = lambda ctx: (_ for _ in ()).throw(ConnectionError())
    doubt = ran(carrier, {"a": hook("doubt", effect={"key": "doubt"})})
    turn_time(399 * DAY)
    assert engine.forget_old_effects() == 0
    young = ran(carrier, {"a": pay("young")})
    turn_time(2 * DAY)

    assert engine.forget_old_effects() == 1
    assert engine.forget_old_effects() == 0

    assert keys() == ["waits", "doubt", "young"]
    assert [state(run) for run in (ended, waiting, doubt, young)] == [
        "completed",
        "waiting",
        "waiting",
        "completed",
    ]


def test_what_is_forgotten_can_happen_again_and_no_invariant_minds(
    options: Any, transactional_db: None, turn_time: Any, carrier: Carrier
) -> None:
    options(EFFECT_RETENTION="30d")
    ran(carrier, {"a": pay()})
    turn_time(31 * DAY)
    forget()
    again = ran(carrier, {"a": pay()})

    assert probes.calls["pay"] == 2
    assert Effect.objects.get().run_id == again.pk
    findings = {f.rule: f.violations for f in check_runs(newest_runs(10))}
    assert findings["effect_once"] == []


def test_a_round_is_bounded_and_the_next_goes_on(
    options: Any, transactional_db: None, turn_time: Any, carrier: Carrier
) -> None:
    options(EFFECT_RETENTION="30d")
    wait = {"type": "wait", "signal": "go", "needs": ["a"]}
    ran(carrier, {"a": pay("kept"), "b": wait}, timeout="3650d")
    for number in range(5):
        ran(carrier, {"a": pay(f"k{number}")})
    turn_time(31 * DAY)

    done = [engine.forget_old_effects(batch=2, batches=1) for _ in range(6)]

    assert done == [1, 1, 1, 1, 1, 0]
    assert keys() == ["kept"]


@pytest.mark.parametrize("text", ["12h", "1y", "soon"])
def test_a_retention_that_makes_no_sense_is_named(text: str, monkeypatch: Any) -> None:

    with pytest.raises(ValueError, match="orchestrator_effect_retention"):
        Environment(orchestrator_effect_retention=text)
