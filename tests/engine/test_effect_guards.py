"""Each guard of an effect by itself, with the other guards out of the way.

``tests/drill/guards.py`` takes each guard away and sees to it that its test fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from orchestrator import crash, engine
from orchestrator.engine import effects
from orchestrator.models import (
    Effect,
    Run,
    moves,
    rows,
)
from orchestrator.models.moves import StaleFence
from tests.engine import ledger, probes
from tests.engine.carrier import Carrier
from tests.engine.guarded import completion, running, work_on
from tests.engine.ledger import ASKABLE, KEYED, KEYLESS, UNSURE, pay
from tests.engine.runs import (
    NO_RETRY,
    error,
    hook,
    kill,
    lose,
    output,
    ran,
    registered,
    say,
    settle_down,
    start,
    started,
    state,
    step,
)
from tests.engine.test_repair import repair

Turn = Callable[[float], None]


@pytest.fixture(autouse=True)
def _clean_ledger() -> Iterator[None]:
    ledger.forget()
    yield
    ledger.forget()


def dead_after(carrier: Carrier, kind: str, **more: Any) -> UUID:
    """A run whose worker died right after the provider had done it; the lease is over."""
    ledger.next_fault("dies_after")
    run_id = started({"a": pay(kind, "pay:1", **more), "z": say(1, needs=["a"])})
    kill(carrier)
    assert ledger.done == {"pay:1": 1}
    lose(run_id, "a")
    engine.beat_once()
    carrier.run_all()
    return run_id


def test_an_effect_that_nobody_can_look_up_is_asked_about_and_never_sent_again(
    carrier: Carrier, turn_time: Turn
) -> None:
    run_id = dead_after(carrier, KEYLESS)
    for _ in range(3):
        turn_time(3600)
        engine.beat_once()
        carrier.run_all()
    assert (state(run_id), Run.objects.get(pk=run_id).waiting_for) == ("waiting", "review")
    assert ledger.sent == {"pay:1": 1}
    assert Effect.objects.get().status == "in_doubt"


def test_an_effect_of_a_dead_worker_is_sent_again_with_its_key_where_that_is_harmless(
    carrier: Carrier,
) -> None:
    run_id = dead_after(carrier, KEYED)
    assert state(run_id) == "completed"
    assert (ledger.sent["pay:1"], ledger.done["pay:1"]) == (2, 1)
    assert Effect.objects.get().status == "applied"


def test_an_effect_in_doubt_is_looked_up_and_not_sent_again(carrier: Carrier) -> None:
    run_id = dead_after(carrier, ASKABLE)
    assert state(run_id) == "completed"
    assert ledger.sent == {"pay:1": 1}
    assert step(run_id, "a").output == {"external_ref": "R:pay:1"}


def test_a_look_up_that_cannot_tell_leaves_it_to_a_person(
    carrier: Carrier, turn_time: Turn
) -> None:
    run_id = dead_after(carrier, UNSURE)
    turn_time(61)
    engine.beat_once()
    carrier.run_all()
    assert (state(run_id), Run.objects.get(pk=run_id).waiting_for) == ("waiting", "review")
    assert ledger.sent == {"pay:1": 1}


def test_a_lost_answer_is_no_reason_to_send_again(carrier: Carrier, turn_time: Turn) -> None:
    ledger.next_fault("lost")
    run = ran(carrier, {"a": pay(KEYLESS, "pay:1")})
    turn_time(61)
    engine.beat_once()
    carrier.run_all()
    run.refresh_from_db()
    assert (run.state, run.waiting_for) == ("waiting", "review")
    assert ledger.sent == {"pay:1": 1}


def test_the_intent_is_stored_before_the_provider_is_called(carrier: Carrier) -> None:
    seen: list[tuple[str, str]] = []

    def look(ctx: Any) -> None:
        seen.extend(Effect.objects.values_list("idempotency_key", "status"))

    probes.hooks["look"] = look
    run = ran(carrier, {"a": hook("look", effect={"key": "pay:1"})})
    assert state(run) == "completed"
    assert seen == [("pay:1", "intended")]


def test_a_second_run_finds_the_receipt_of_the_first_and_calls_nobody(carrier: Carrier) -> None:
    blueprint = registered({"a": pay(KEYLESS, "pay:1")})
    first, second = start(blueprint), start(blueprint)
    carrier.run_all()
    assert output(first) == output(second) == {"a": {"external_ref": "R:pay:1"}}
    assert ledger.sent == {"pay:1": 1}


def test_one_effect_key_for_two_requests_is_an_error(carrier: Carrier) -> None:
    blueprint = registered({"a": pay(KEYLESS, "pay:1", "${{ input.n }}")})
    first, second = start(blueprint, {"n": 1}), start(blueprint, {"n": 2})
    carrier.run_all()
    assert (state(first), state(second)) == ("completed", "failed")
    assert error(second)["details"]["code"] == "effect_key_reused"
    assert ledger.sent == {"pay:1": 1}


@pytest.fixture
def looks_too_early(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """The next look at an effect is old by the time it is used: ``meanwhile`` happens after it."""

    def arrange(meanwhile: Callable[[], None]) -> None:
        look = effects.effect_rows.find_effect
        pending = [meanwhile]

        def stale(*args: Any, **named: Any) -> Any:
            found = look(*args, **named)
            if pending:
                pending.pop()()
            return found

        monkeypatch.setattr(effects.effect_rows, "find_effect", stale)

    return arrange


def test_who_looked_before_another_run_acted_looks_again(
    carrier: Carrier, looks_too_early: Callable[[Callable[[], None]], None]
) -> None:
    blueprint = registered({"a": pay(KEYLESS, "pay:1")})
    first, second = start(blueprint), start(blueprint)
    carrier.messages.clear()
    looks_too_early(lambda: work_on(first))
    work_on(second)
    assert (state(first), state(second)) == ("completed", "completed")
    assert ledger.sent == {"pay:1": 1}


def test_who_looked_before_another_request_took_the_key_is_refused(
    carrier: Carrier, looks_too_early: Callable[[Callable[[], None]], None]
) -> None:
    blueprint = registered({"a": pay(KEYLESS, "pay:1", "${{ input.n }}", **NO_RETRY)})
    first, second = start(blueprint, {"n": 1}), start(blueprint, {"n": 2})
    carrier.messages.clear()
    ledger.next_fault("refused")
    looks_too_early(lambda: work_on(first))
    work_on(second)
    assert Effect.objects.get().status == "not_applied"
    assert (state(first), state(second)) == ("failed", "failed")
    assert error(second)["details"]["code"] == "effect_key_reused"
    assert ledger.done == {}


def test_an_effect_that_another_run_is_calling_is_waited_for(
    carrier: Carrier, turn_time: Turn
) -> None:
    second: list[UUID] = []

    def body(ctx: Any) -> dict[str, Any]:
        probes.calls["pay"] += 1
        if len(second) == 1 and probes.calls["pay"] == 1:
            carrier.run_all()  # the second run's step, while the first one's body is at it
            assert step(second[0], "a").state == "retrying"
        return {"external_ref": "R-1"}

    probes.hooks["pay"] = body
    blueprint = registered({"a": hook("pay", effect={"key": "pay:1"})})
    first = start(blueprint)
    second.append(start(blueprint))
    carrier.run_one()
    settle_down(carrier, turn_time, by=3)
    assert output(first) == output(second[0])
    assert probes.calls["pay"] == 1


def test_no_receipt_is_written_without_an_intent(carrier: Carrier) -> None:
    run_id = running(carrier)
    found, row = rows.read_work(run_id, "a", "")
    receipt = {"key": "pay:1", "status": "applied", "response": 1}
    with pytest.raises(StaleFence):
        moves.apply_decision(completion(found, row, effect=receipt))
    assert step(run_id, "a").state == "running"
    assert Effect.objects.count() == 0


def test_no_receipt_is_written_over_another(carrier: Carrier) -> None:
    """Whoever settles it second, by whatever way, finds it settled."""
    ledger.next_fault("dies_after")
    run_id = started({"a": pay(KEYLESS, "pay:1")})
    kill(carrier)
    Effect.objects.update(status="applied", response={"external_ref": "R-1"})
    found, row = rows.read_work(run_id, "a", "")
    with pytest.raises(StaleFence):
        moves.apply_decision(
            completion(found, row, effect={"key": "pay:1", "status": "not_applied"})
        )
    assert Effect.objects.get().response == {"external_ref": "R-1"}
    Effect.objects.update(status="intended", response=None)  # as it was: the invariants look on


def test_an_effect_that_a_person_is_asked_about_is_asked_about_once(
    carrier: Carrier, turn_time: Turn
) -> None:
    """A second run with the key keeps its hands off, so that the first can still be settled."""
    first = dead_after(carrier, KEYLESS)
    assert Run.objects.get(pk=first).waiting_for == "review"
    second = started({"a": pay(KEYLESS, "pay:1")})
    carrier.run_all()
    assert step(second, "a").state == "retrying"

    run = Run.objects.get(pk=first)
    repair(run, "settle_effect", effect_key="pay:1", outcome="applied", external_ref="R-1")
    settle_down(carrier, turn_time)
    assert (state(first), state(second)) == ("completed", "completed")
    assert step(second, "a").output == {"external_ref": "R-1"}
    assert ledger.sent == {"pay:1": 1}


def test_a_doubt_that_moved_since_it_was_looked_at_is_not_taken_over(
    carrier: Carrier, looks_too_early: Callable[[Callable[[], None]], None], turn_time: Turn
) -> None:
    """The first run asks a person meanwhile; its doubt must stay with it to be settled."""
    ledger.next_fault("dies_after")
    first = started({"a": pay(UNSURE, "pay:1")})
    kill(carrier)
    lose(first, "a")
    engine.beat_once()
    assert step(first, "a").state == "ready"
    second = started({"a": pay(UNSURE, "pay:1")})
    carrier.messages.clear()
    looks_too_early(lambda: work_on(first))
    work_on(second)
    assert Run.objects.get(pk=first).waiting_for == "review"
    assert step(second, "a").state == "retrying"

    repair(
        Run.objects.get(pk=first),
        "settle_effect",
        effect_key="pay:1",
        outcome="applied",
        external_ref="R-1",
    )
    settle_down(carrier, turn_time)
    assert (state(first), state(second)) == ("completed", "completed")
    assert ledger.sent == {"pay:1": 1}


@pytest.mark.parametrize("kind", [KEYLESS, ASKABLE])
def test_who_stood_still_past_its_lease_after_it_began_calls_nobody(
    carrier: Carrier, kind: str
) -> None:
    """By our own clock the lease is over, so the attempt has no answer; the sweep finds it."""

    def stands_still(place: str) -> None:
        if place == "body:before":
            for held in engine.keeper._held.values():
                held.since -= 3600

    crash.set_hook(stands_still)
    try:
        run = ran(carrier, {"a": pay(kind, "pay:1"), "z": say(1, needs=["a"])})
    finally:
        crash.set_hook(None)
    assert (ledger.done, step(run, "a").state) == ({}, "running")
    lose(run, "a")
    engine.beat_once()
    carrier.run_all()
    assert ledger.done == ({} if kind == KEYLESS else {"pay:1": 1})
    assert state(run) == ("waiting" if kind == KEYLESS else "completed")


def test_a_refusal_says_nothing_about_the_call_before_it_whose_answer_was_lost(
    carrier: Carrier, turn_time: Turn
) -> None:
    """Else the money is taken, the effect counts as not applied, and nobody gives it back."""
    ledger.next_fault("lost")
    ledger.next_fault("refused")
    undo = {"compensate": {"tool": "probe.count", "input": {"name": "undo"}}}
    run = ran(carrier, {"a": pay(KEYED, "pay:1", retry={"max_retries": 1}, **undo)})
    turn_time(61)
    engine.beat_once()
    carrier.run_all()
    assert (ledger.sent, ledger.done) == ({"pay:1": 2}, {"pay:1": 1})
    assert Effect.objects.get().status == "in_doubt"
    assert (state(run), Run.objects.get(pk=run.pk).waiting_for) == ("waiting", "review")
    found = {"effect_key": "pay:1", "outcome": "applied", "output": {"external_ref": "R:pay:1"}}
    repair(run, "settle_effect", **found)
    carrier.run_all()
    assert (state(run), probes.calls["undo"]) == ("completed", 0)
