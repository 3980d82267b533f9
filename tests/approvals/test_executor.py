"""Asking: the request row, once, for the attempt that holds the step; and what an answer means."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from approvals_app.executor import HumanGateExecutor
from approvals_app.models import Request
from orchestrator.core.errors import ErrorClass
from orchestrator.core.outcomes import Answer, EndRun, Failed, Succeeded, Waiting
from orchestrator.models import Run
from tests.approvals.builders import (
    GATE,
    a_context,
    a_step_at_work,
    claimed_again,
    requests_of,
)

executor = HumanGateExecutor()
APPROVED = {"decision": "approved", "by": "user:ann", "notes": "fine", "data": {"limit": 5}}
REJECTED = {"decision": "rejected", "by": "user:ann", "notes": "too much", "data": None}


@pytest.mark.django_db
def test_a_gate_stores_what_it_asks_and_waits_for_a_person() -> None:
    step = a_step_at_work()
    config = {
        **GATE,
        "title": "Release the order",
        "message": "Order ${{ input.order }}?",
        "form": {"type": "object"},
        "assignees": ["role:finance", "user:${{ input.owner }}"],
        "quorum": 2,
        "four_eyes": True,
    }
    scope = {"input": {"order": "A-1", "owner": "bob"}}

    outcome = executor.execute(a_context(step, config, scope=scope))

    assert outcome == Waiting(
        kind="person",
        key="approve",
        due=timedelta(hours=4),
        why="approval by role:finance, user:bob",
    )
    request = Request.objects.get()
    assert request.message == "Order A-1?"
    assert request.title == "Release the order"
    assert request.form == {"type": "object"}
    assert request.quorum == 2
    assert request.four_eyes
    assert request.starter == "user:starter"
    assert request.upstream == {"draft": {"text": "Dear Ann"}}
    assert request.due_at - request.opened_at == timedelta(hours=4)
    assert [each.who for each in request.assignments.all()] == ["role:finance", "user:bob"]


@pytest.mark.django_db
def test_a_gate_waits_a_day_when_the_document_says_nothing() -> None:
    config = {"type": "human_gate", "assignees": ["role:finance"]}

    outcome = executor.execute(a_context(a_step_at_work(), config))

    assert isinstance(outcome, Waiting)
    assert outcome.due == timedelta(days=1)


@pytest.mark.django_db
def test_asking_twice_stores_one_request() -> None:
    context = a_context(a_step_at_work())

    first, second = executor.execute(context), executor.execute(context)

    assert first == second
    assert Request.objects.count() == 1
    assert Request.objects.get().assignments.count() == 1


@pytest.mark.django_db
def test_the_next_attempt_asks_anew_and_closes_the_lost_ones_request() -> None:
    step = a_step_at_work()
    executor.execute(a_context(step))

    outcome = executor.execute(a_context(claimed_again(step)))

    assert isinstance(outcome, Waiting)
    assert requests_of(step.run_id) == [(1, "cancelled"), (2, "open")]


@pytest.mark.django_db
def test_a_worker_that_lost_its_lease_asks_nobody() -> None:
    step = a_step_at_work()
    late = a_context(step)
    executor.execute(a_context(claimed_again(step)))

    outcome = executor.execute(late)

    assert isinstance(outcome, Failed)
    assert outcome.error.error_class is ErrorClass.CANCELLED
    assert requests_of(step.run_id) == [(2, "open")]


@pytest.mark.django_db(transaction=True)
def test_a_cancel_under_way_is_waited_for_and_then_nobody_is_asked() -> None:
    step = a_step_at_work()
    outcomes: list[Any] = []

    def ask() -> None:
        try:
            outcomes.append(executor.execute(a_context(step)))
        finally:
            connection.close()

    worker = threading.Thread(target=ask)
    with transaction.atomic():
        Run.objects.filter(pk=step.run_id).update(state="cancelled")
        worker.start()
        _wait_until_blocked()
        assert outcomes == []
    worker.join(timeout=10)

    assert isinstance(outcomes[0], Failed)
    assert not Request.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize("assignees", [["finance"], ["user:${{ input.nobody }}"], ["role: "], []])
def test_an_assignee_who_is_nobody_fails_the_step_and_stores_nothing(assignees: list[str]) -> None:
    outcome = executor.execute(a_context(a_step_at_work(), {**GATE, "assignees": assignees}))

    assert isinstance(outcome, Failed)
    assert outcome.error.error_class is ErrorClass.CONDITION_ERROR
    assert not Request.objects.exists()


@pytest.mark.django_db
def test_the_tiers_of_an_escalation_are_known_from_the_start() -> None:
    config = {
        **GATE,
        "on_timeout": "escalate",
        "escalate": [
            {"after": "1h", "to": ["role:lead"]},
            {"after": "9h", "to": ["role:head", "role:finance"]},
        ],
    }

    executor.execute(a_context(a_step_at_work(), config))

    request = Request.objects.get()
    tiers = [(a.who, a.tier, a.from_at - request.opened_at) for a in request.assignments.all()]
    assert tiers == [
        ("role:finance", 0, timedelta(0)),
        ("role:lead", 1, timedelta(hours=1)),
        # the end of the time calls everybody, however late the document would have
        ("role:head", 2, timedelta(hours=4)),
    ]


def resume(config: dict[str, Any], answer: Answer) -> Any:
    return executor.resume({**GATE, **config}, answer, upstream={"draft": 1})


def test_an_approval_hands_on_decision_notes_data_and_upstream() -> None:
    outcome = resume({}, Answer(kind="decision", payload=APPROVED))

    assert outcome == Succeeded(output={**APPROVED, "upstream": {"draft": 1}})


def test_a_rejection_fails_the_step_with_its_own_class() -> None:
    outcome = resume({}, Answer(kind="decision", payload=REJECTED))

    assert isinstance(outcome, Failed)
    assert outcome.error.error_class is ErrorClass.REJECTED
    assert outcome.error.message == "rejected by user:ann: too much"


def test_a_rejection_may_end_the_run() -> None:
    outcome = resume({"on_reject": "end"}, Answer(kind="decision", payload=REJECTED))

    assert outcome == EndRun(output={**REJECTED, "upstream": {"draft": 1}}, outcome="rejected")


def test_a_rejection_may_go_on_as_an_output() -> None:
    outcome = resume({"on_reject": "continue"}, Answer(kind="decision", payload=REJECTED))

    assert outcome == Succeeded(output={**REJECTED, "upstream": {"draft": 1}})


@pytest.mark.parametrize("on_reject", ["fail", "end", "continue"])
def test_the_end_of_the_time_rejects_like_a_person(on_reject: str) -> None:
    config = {"on_reject": on_reject}
    said = {
        "decision": "rejected",
        "by": "system:timeout",
        "notes": "No decision within 4h.",
        "data": None,
    }

    assert resume(config, Answer(kind="timer")) == resume(
        config, Answer(kind="decision", payload=said)
    )


def test_the_end_of_the_time_may_approve() -> None:
    outcome = resume({"on_timeout": "approve"}, Answer(kind="timer"))

    assert isinstance(outcome, Succeeded)
    assert outcome.output["decision"] == "approved"
    assert outcome.output["by"] == "system:timeout"
    assert outcome.output["upstream"] == {"draft": 1}


def test_the_end_of_the_time_may_ask_others_and_wait_as_long_again() -> None:
    config = {"on_timeout": "escalate", "escalate": [{"after": "1h", "to": ["role:lead"]}]}

    outcome = resume(config, Answer(kind="timer"))

    assert outcome == Waiting(
        kind="person", due=timedelta(hours=4), why="approval overdue, escalated: role:lead"
    )


def test_an_answer_of_another_kind_is_a_defect() -> None:
    with pytest.raises(TypeError, match="signal"):
        resume({}, Answer(kind="signal", payload={}))


def _wait_until_blocked() -> None:
    """Return once some other connection waits for a lock."""
    query = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    with connection.cursor() as cursor:
        for _ in range(100_000):
            cursor.execute("SELECT pg_stat_clear_snapshot()")
            cursor.execute(query)
            if cursor.fetchone()[0]:
                return
    pytest.fail("nobody waited for the run's lock")
