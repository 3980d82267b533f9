"""Requests close when the engine tells of a gate's or a run's end; told twice, nothing more."""

from __future__ import annotations

from uuid import uuid4

import pytest

from approvals_app.executor import HumanGateExecutor
from approvals_app.models import Request
from approvals_app.requests import on_gate_closed, on_run_ended
from tests.approvals.builders import a_context, a_step_at_work, ask, claimed_again, requests_of

pytestmark = pytest.mark.django_db


def tell(request: Request, reason: str, *, attempt: int = 1) -> None:
    payload = {"step": "approve", "scope": "", "attempt": attempt, "reason": reason}
    on_gate_closed(request.run_id, payload)


@pytest.mark.parametrize(
    ("reason", "state", "by"),
    [("timeout", "expired", "system:timeout"), ("cancelled", "cancelled", "system:run")],
)
def test_a_gate_that_ended_without_a_decision_closes_its_request_once(
    reason: str, state: str, by: str
) -> None:
    request = ask()

    tell(request, reason)
    request.refresh_from_db()
    first = (request.state, request.closed_by, request.closed_at)
    tell(request, "cancelled")
    tell(request, "timeout")

    request.refresh_from_db()
    assert first[:2] == (state, by)
    assert first == (request.state, request.closed_by, request.closed_at)


def test_news_of_an_older_round_leaves_the_present_one_open() -> None:
    step = a_step_at_work()
    HumanGateExecutor().execute(a_context(step))
    HumanGateExecutor().execute(a_context(claimed_again(step)))

    on_gate_closed(
        step.run_id, {"step": "approve", "scope": "", "attempt": 1, "reason": "cancelled"}
    )

    assert requests_of(step.run_id) == [(1, "cancelled"), (2, "open")]


def test_the_end_of_a_run_closes_what_it_still_asked_and_nothing_else() -> None:
    mine, other = ask(), ask()

    on_run_ended(mine.run_id, {"state": "cancelled"})
    on_run_ended(mine.run_id, {"state": "cancelled"})

    assert requests_of(mine.run_id) == [(1, "cancelled")]
    assert requests_of(other.run_id) == [(1, "open")]


def test_the_end_of_a_run_changes_no_recorded_expiry() -> None:
    request = ask()
    tell(request, "timeout")

    on_run_ended(request.run_id, {"state": "failed"})

    assert requests_of(request.run_id) == [(1, "expired")]


def test_a_run_without_gates_ends_quietly() -> None:
    on_run_ended(uuid4(), {"state": "completed"})

    assert not Request.objects.exists()
