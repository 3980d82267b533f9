"""Decisions on real runs: what they lead to, and that exactly one of many counts."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from approvals_app.decisions import Decided
from approvals_app.models import Decision, Request
from orchestrator import engine
from orchestrator.core.admission import Lane
from orchestrator.core.errors import StateConflict
from orchestrator.engine import steps
from orchestrator.engine.work import perform
from orchestrator.models import Run, Step
from tests.approvals.builders import requests_of
from tests.approvals.runs import all_at_once, asking, events_of, press, started, step_of
from tests.conftest import TurnTime
from tests.engine.carrier import Carrier

pytestmark = pytest.mark.django_db(transaction=True)
FOUR_HOURS = 4 * 3600 + 1


def test_an_approval_sends_the_run_on_with_notes_and_data(carrier: Carrier) -> None:
    request = asking(carrier)

    result = press(request, notes="all fine", data={"limit": 5})
    carrier.run_all()

    assert result.concluded
    assert result.request.outcome == "approved"
    assert result.request.closed_by == "user:ann"
    run = Run.objects.get()
    assert run.state == "completed"
    assert run.output["gate"] == {
        "decision": "approved",
        "by": "user:ann",
        "notes": "all fine",
        "data": {"limit": 5},
        "upstream": {},
    }
    assert step_of(run.pk, "tell").output == {"text": "noted: all fine"}
    assert len(events_of(run.pk, "gate.decided")) == 1


@pytest.mark.parametrize(
    ("on_reject", "state", "outcome"),
    [
        ("fail", "failed", ""),
        ("end", "completed", "rejected"),
        ("continue", "completed", "succeeded"),
    ],
)
def test_a_rejection_does_what_the_document_says(
    carrier: Carrier, on_reject: str, state: str, outcome: str
) -> None:
    request = asking(carrier, on_reject=on_reject)

    press(request, choice="reject", notes="too much")
    carrier.run_all()

    run = Run.objects.get()
    assert (run.state, run.outcome) == (state, outcome)
    request.refresh_from_db()
    assert (request.state, request.outcome) == ("decided", "rejected")
    if on_reject == "fail":
        assert run.error["class"] == "rejected"
        assert "too much" in run.error["message"]


def test_of_fifty_people_who_press_at_once_one_decides(carrier: Carrier) -> None:
    request = asking(carrier)
    choices = ["approve", "reject"]

    results = all_at_once(
        [partial(press, request, by=f"user:{n}", choice=choices[n % 2]) for n in range(50)]
    )
    carrier.run_all()

    won = [each for each in results if isinstance(each, Decided)]
    lost = [each for each in results if isinstance(each, StateConflict)]
    assert (len(won), len(lost)) == (1, 49)
    assert {each.state for each in lost} == {"decided"}
    decision = Decision.objects.get()
    request.refresh_from_db()
    assert request.closed_by == decision.by
    assert len(events_of(request.run_id, "gate.decided")) == 1


def test_fifty_clicks_of_one_person_are_one_decision(carrier: Carrier) -> None:
    request = asking(carrier)

    results = all_at_once([partial(press, request)] * 50)
    carrier.run_all()

    assert sum(each.applied for each in results) == 1
    assert all(each.concluded for each in results)
    assert Decision.objects.count() == 1
    assert Run.objects.get().state == "completed"


def test_a_quorum_takes_exactly_as_many_answers_as_it_needs(carrier: Carrier) -> None:
    request = asking(carrier, quorum=3)

    results = all_at_once([partial(press, request, by=f"user:{n}") for n in range(12)])

    taken = [each for each in results if isinstance(each, Decided)]
    assert len(taken) == 3
    assert [each.concluded for each in taken].count(True) == 1
    assert Decision.objects.count() == 3


def test_a_decision_that_meets_the_deadline_is_one_of_the_two(
    carrier: Carrier, turn_time: TurnTime
) -> None:
    for _ in range(8):
        request = asking(carrier, on_reject="continue")
        turn_time(FOUR_HOURS)

        decided, _ = all_at_once([partial(press, request), engine.beat_once])
        engine.beat_once()  # what the first round left in the outbox
        carrier.run_all()

        request.refresh_from_db()
        by = step_of(request.run_id).output["by"]
        if isinstance(decided, Decided):
            assert (request.state, by) == ("decided", "user:ann")
        else:
            assert isinstance(decided, StateConflict), decided
            assert decided.state == "expired"
            assert (request.state, by) == ("expired", "system:timeout")
            assert not request.decisions.exists()


def test_a_gate_that_expires_is_rejected_and_shown_as_expired(
    carrier: Carrier, turn_time: TurnTime
) -> None:
    request = asking(carrier)
    turn_time(FOUR_HOURS)

    engine.beat_once()
    carrier.run_all()

    run = Run.objects.get()
    assert (run.state, run.error["class"]) == ("failed", "rejected")
    request.refresh_from_db()
    assert (request.state, request.closed_by) == ("expired", "system:timeout")
    with pytest.raises(StateConflict) as refusal:
        press(request)
    assert refusal.value.state == "expired"


def test_an_answer_before_the_news_of_the_expiry_is_refused_and_not_kept(
    carrier: Carrier, turn_time: TurnTime, settings: Any
) -> None:
    settings.ORCHESTRATOR = settings.ORCHESTRATOR | {"SUBSCRIBERS": {}}  # the news is on its way
    request = asking(carrier)
    turn_time(FOUR_HOURS)
    engine.beat_once()

    with pytest.raises(StateConflict) as refusal:
        press(request)

    assert refusal.value.state == "expired"
    assert not Decision.objects.exists()
    assert requests_of(request.run_id) == [(1, "open")]


def test_a_gate_may_approve_by_itself_when_its_time_is_over(
    carrier: Carrier, turn_time: TurnTime
) -> None:
    request = asking(carrier, on_timeout="approve")
    turn_time(FOUR_HOURS)

    engine.beat_once()
    carrier.run_all()

    assert Run.objects.get().output["gate"]["by"] == "system:timeout"
    assert requests_of(request.run_id) == [(1, "expired")]


def test_an_escalated_gate_stays_open_for_the_next_tier(
    carrier: Carrier, turn_time: TurnTime
) -> None:
    escalate = [{"after": "9h", "to": ["user:lea"]}]
    request = asking(carrier, on_timeout="escalate", escalate=escalate)
    turn_time(FOUR_HOURS)
    engine.beat_once()
    assert step_of(request.run_id).state == "waiting"

    press(request, by="user:lea")
    carrier.run_all()

    assert Run.objects.get().state == "completed"
    assert requests_of(request.run_id) == [(1, "decided")]


def test_an_escalated_gate_escalates_again_and_never_decides_by_itself(
    carrier: Carrier, turn_time: TurnTime
) -> None:
    request = asking(carrier, on_timeout="escalate")

    for _ in range(3):
        turn_time(FOUR_HOURS)
        engine.beat_once()

    assert step_of(request.run_id).state == "waiting"
    assert requests_of(request.run_id) == [(1, "open")]
    assert len(events_of(request.run_id, "step.waiting")) == 4


def test_a_cancelled_run_asks_nobody_any_more(carrier: Carrier) -> None:
    request = asking(carrier)

    engine.cancel_run(request.run_id, reason="not needed", actor="user:op")
    engine.beat_once()

    assert requests_of(request.run_id) == [(1, "cancelled")]
    with pytest.raises(StateConflict) as refusal:
        press(request)
    assert refusal.value.state == "cancelled"


def claimed_and_asked(run: Run) -> tuple[Any, Any]:
    """A worker that has asked and not yet parked its step."""
    work = steps.claim(engine.Order(run_id=run.pk, key="approve"))
    assert work is not None
    return work, perform(work, max_items=10)


def test_an_answer_that_comes_before_the_step_is_parked_counts(carrier: Carrier) -> None:
    run = started(carrier)
    work, outcome = claimed_and_asked(run)

    result = press(Request.objects.get(), notes="quick")
    assert step_of(run.pk).state == "running"
    steps.settle(work, outcome, Lane(queue="approval", takes_next=False))
    carrier.run_all()

    assert result.concluded
    run.refresh_from_db()
    assert run.state == "completed"
    assert run.output["gate"]["notes"] == "quick"
    assert requests_of(run.pk) == [(1, "decided")]


def test_a_worker_lost_after_asking_leaves_one_open_request(carrier: Carrier) -> None:
    run = started(carrier)
    claimed_and_asked(run)
    carrier.messages.clear()
    Step.objects.filter(run=run).update(lease_until="2000-01-01T00:00:00Z")

    engine.beat_once()
    carrier.run_all()

    assert requests_of(run.pk) == [(1, "cancelled"), (2, "open")]
    press(Request.objects.get(state="open"))
    carrier.run_all()
    run.refresh_from_db()
    assert run.state == "completed"
