"""The saga ledger tells of each effect what became of it; a person settles by hand what is left."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator import engine
from orchestrator.core.errors import InvalidRequest, NotFound, StateConflict
from orchestrator.models import DeadLetter, Repair, Run
from tests.engine.carrier import Carrier
from tests.engine.runs import TENANT, count, events, fail, ran, say, state
from tests.engine.test_concurrency import all_at_once
from tests.engine.test_undoing import ends, pay, silent, undoing


def ledger(run: Run) -> dict[str, engine.SagaLine]:
    return {line.step: line for line in engine.saga_ledger(Run.objects.get(pk=run.pk))}


def states(run: Run, *, with_scope: bool = False) -> dict[str, str]:
    lines = engine.saga_ledger(Run.objects.get(pk=run.pk))
    return {line.step + (line.scope if with_scope else ""): line.state for line in lines}


def test_each_step_that_acts_outside_has_its_line_in_the_order_of_undoing(carrier: Carrier) -> None:
    refund = {"tool": "probe.count", "input": {"name": "refund"}, "effect": {"key": "refund:1"}}
    never = {"tool": "probe.fail", "input": {"kind": "permanent"}}
    steps = {
        "pay": count("pay", {"external_ref": "P-1"}, effect={"key": "pay:1"}, compensate=refund),
        "plain": say(1, needs=["pay"]),
        "book": say(2, needs=["plain"], compensate=never),
        "mail": count("mail", needs=["book"], effect={"key": "mail:1"}, irreversible=True),
        "note": count("note", needs=["book"], effect={"key": "note:1"}),
        "z": fail(needs=["mail", "note"], effect={"key": "z:1"}),
    }
    run = ran(carrier, steps)
    lines = ledger(run)
    assert list(lines)[:2] == ["book", "pay"]
    assert states(run) == {
        "book": "not_undone",
        "pay": "undone",
        "mail": "irreversible",
        "note": "done",
        "z": "not_done",
    }
    assert lines["z"].task is None
    pay_line = lines["pay"]
    assert (pay_line.effect_key, pay_line.compensation_key) == ("pay:1", "refund:1")
    assert (pay_line.external_ref, pay_line.turn, pay_line.attempts) == ("P-1", 2, 1)
    tasks = {lines["book"].task, lines["mail"].task}
    assert tasks == set(DeadLetter.objects.exclude(reason="permanent").values_list("pk", flat=True))
    assert lines["book"].why == "never"


def test_a_completed_run_shows_what_stands(carrier: Carrier) -> None:
    run = ran(carrier, {"a": count("a", effect={"key": "k"}, **undoing("a")), "b": say(1)})
    assert states(run) == {"a": "done"}
    assert ledger(run)["a"].task is None


def test_what_nobody_knows_is_said(carrier: Carrier) -> None:
    silent()
    run = ran(carrier, {"a": pay()})
    line = ledger(run)["a"]
    assert (line.state, line.effect_key) == ("unknown", "pay:1")
    assert "no answer" in line.why


def test_a_run_that_acts_nowhere_has_an_empty_ledger(
    carrier: Carrier, django_assert_num_queries: Any
) -> None:
    run = ran(carrier, {"a": say(1)})
    run.refresh_from_db()
    engine.compiled(run.blueprint_id)
    with django_assert_num_queries(0):
        assert engine.saga_ledger(run) == []


# -- settled by hand -------------------------------------------------------------------------------


def left(carrier: Carrier) -> tuple[Run, DeadLetter]:
    run = ran(carrier, {"a": say(1, irreversible=True), "z": fail(needs=["a"])})
    return run, DeadLetter.objects.get(run=run, reason="irreversible")


def settle(letter: DeadLetter, token: str = "t1", reason: str = "called them", **more: Any) -> bool:
    given = {"tenant": TENANT, "actor": "user:op", "role": "operator", **more}
    return engine.settle_letter(letter.pk, reason=reason, token=token, **given)


def test_a_person_closes_what_no_machine_can_do_once_and_audited(carrier: Carrier) -> None:
    run, letter = left(carrier)
    assert settle(letter) is True
    assert settle(letter) is False
    letter.refresh_from_db()
    assert (letter.settled_by, letter.settlement) == ("user:op", "called them")
    audit = Repair.objects.get(run=run)
    assert (audit.action, audit.reason, audit.role) == ("settle_by_hand", "called them", "operator")
    assert events(run)[-1] == "repair.settle_by_hand"
    assert (state(run), ends(run)) == ("failed", "partial")
    assert ledger(run)["a"].task is None


def test_a_letter_is_closed_by_one_person(carrier: Carrier) -> None:
    _, letter = left(carrier)
    answers = all_at_once([lambda n=n: settle(letter, token=n) for n in ("one", "two")])
    assert sorted(str(type(answer).__name__) for answer in answers) == ["StateConflict", "bool"]
    assert Repair.objects.count() == 1
    with pytest.raises(StateConflict) as refused:
        settle(letter, token="three")
    assert refused.value.code == "letter_closed"


def test_another_tenants_letter_is_not_found_and_a_token_is_for_one_act(carrier: Carrier) -> None:
    _, letter = left(carrier)
    with pytest.raises(NotFound):
        settle(letter, tenant="other")
    settle(letter)
    with pytest.raises(InvalidRequest):
        settle(letter, reason="another")


def test_a_letter_tells_the_service_and_region_of_its_step(carrier: Carrier) -> None:
    run = ran(carrier, {"a": fail(service="shop", queue="tool@eu")})
    letter = DeadLetter.objects.get(run=run)
    assert (letter.service, letter.region, letter.reason) == ("shop", "eu", "permanent")
