"""The demo's services, called the way a step calls them, against a real database."""

from __future__ import annotations

import threading

import pytest
from django.db import connection

from orchestrator.core.errors import ErrorClass
from orchestrator.core.outcomes import Failed, Succeeded
from orchestrator.executors.effects import Applied, NotApplied, look_up_effect
from orchestrator.executors.tool import ToolExecutor
from tests.executors.builders import step_context
from workflows_app.gallery.models import DemoFault, DemoLedgerEntry

pytestmark = pytest.mark.django_db


def context(name, given, **fields):
    return step_context({"type": "tool", "tool": f"demo.{name}"}, input=given, **fields)


def run(name, given, **fields):
    return ToolExecutor().execute(context(name, given, **fields))


def charge(order_id="A-1", amount=500, key="pay:A-1", **fields):
    given = {"order_id": order_id, "amount_cents": amount}
    return run("payments.charge", given, idempotency_key=key, **fields)


def failure(outcome):
    assert isinstance(outcome, Failed)
    return outcome.error.error_class, (outcome.error.details or {}).get("not_applied", False)


def test_a_charge_is_in_the_book_once_however_often_it_is_sent():
    first, again = charge(), charge(attempt=2)

    assert isinstance(first, Succeeded)
    assert again == first
    assert first.output["status"] == "captured"
    entry = DemoLedgerEntry.objects.get()
    assert (entry.service, entry.operation, entry.idempotency_key) == (
        "payments",
        "charge",
        "pay:A-1",
    )
    assert entry.run_id == "0190-run"


def test_another_key_or_tenant_is_another_charge():
    refs = {
        charge().output["external_ref"],
        charge(key="pay:A-1b").output["external_ref"],
        charge(tenant="other").output["external_ref"],
    }

    assert len(refs) == 3


def test_a_key_used_for_another_amount_is_refused_for_good():
    charge(amount=500)

    assert failure(charge(amount=501)) == (ErrorClass.PERMANENT, True)
    assert DemoLedgerEntry.objects.count() == 1


def test_a_charge_needs_a_key():
    assert failure(charge(key=None)) == (ErrorClass.PERMANENT, True)
    assert not DemoLedgerEntry.objects.exists()


@pytest.mark.parametrize("amount", [0, -1, "5", 1.5, None])
def test_an_amount_that_is_none_is_a_schema_error(amount):
    assert failure(charge(amount=amount)) == (ErrorClass.SCHEMA_ERROR, True)


def test_a_charge_is_refunded_once():
    ref = charge().output["external_ref"]

    refunds = [
        run("payments.refund", {"external_ref": ref}, idempotency_key="refund:A-1")
        for _ in range(2)
    ]

    assert refunds[0].output == {
        "external_ref": refunds[0].output["external_ref"],
        "status": "refunded",
        "refunded": ref,
        "amount_cents": 500,
    }
    assert refunds[1] == refunds[0]
    assert DemoLedgerEntry.objects.filter(operation="refund").count() == 1


@pytest.mark.parametrize("given", [{"external_ref": "pay_no"}, {"amount_cents": 501}])
def test_what_was_not_paid_is_not_refunded(given):
    ref = charge(amount=500).output["external_ref"]

    outcome = run("payments.refund", {"external_ref": ref, **given}, idempotency_key="r")

    assert failure(outcome) == (ErrorClass.PERMANENT, True)
    assert not DemoLedgerEntry.objects.filter(operation="refund").exists()


def test_another_tenants_payment_cannot_be_refunded():
    ref = charge(tenant="other").output["external_ref"]

    outcome = run("payments.refund", {"external_ref": ref}, idempotency_key="r")

    assert failure(outcome) == (ErrorClass.PERMANENT, True)


def test_the_crm_has_the_orders_stage():
    outcome = run("crm.update", {"order_id": "A-1"}, idempotency_key="crm:A-1")

    assert outcome.output["stage"] == "paid"
    assert outcome.output["order_id"] == "A-1"


def test_the_history_is_the_same_for_the_same_customer():
    given = {"customer_email": "maria.keller@example.com", "limit": 1}

    first, again = (run("tickets.history", given) for _ in range(2))

    assert first == again
    assert len(first.output["tickets"]) <= 1


def test_the_knowledge_base_finds_articles_best_first():
    outcome = run("knowledge.search", {"query": "I was charged twice, refund please", "limit": 2})

    assert [article["id"] for article in outcome.output["articles"]] == ["KB-101", "KB-102"]
    assert outcome.output["articles"][0]["score"] >= outcome.output["articles"][1]["score"]


@pytest.mark.parametrize(
    ("order_id", "expected", "recovers", "booked"),
    [
        ("declined-1", (ErrorClass.PERMANENT, True), False, 0),
        ("flaky-1", (ErrorClass.TRANSIENT, True), True, 0),
        ("down-1", (ErrorClass.TRANSIENT, True), False, 0),
        ("busy-1", (ErrorClass.RATE_LIMIT, True), True, 0),
        ("lost-1", (ErrorClass.TRANSIENT, False), True, 1),
    ],
)
def test_magic_order_ids_fail_as_promised(order_id, expected, recovers, booked):
    assert failure(charge(order_id=order_id)) == expected
    assert DemoLedgerEntry.objects.count() == booked

    again = charge(order_id=order_id, attempt=2)

    assert isinstance(again, Succeeded) is recovers
    assert DemoLedgerEntry.objects.count() == (1 if recovers else booked)


def test_a_slow_answer_ends_with_the_steps_time():
    assert isinstance(charge(order_id="slow-1", timeout_s=0.05), Succeeded)


@pytest.mark.parametrize(
    ("kind", "expected", "booked"),
    [
        ("transient", (ErrorClass.TRANSIENT, True), 0),
        ("rate_limit", (ErrorClass.RATE_LIMIT, True), 0),
        ("permanent", (ErrorClass.PERMANENT, True), 0),
        ("lost_answer", (ErrorClass.TRANSIENT, False), 1),
    ],
)
def test_an_ordered_fault_meets_as_many_calls_as_ordered(kind, expected, booked):
    DemoFault.objects.create(service="payments", kind=kind, remaining=1)
    DemoFault.objects.create(service="crm", kind=kind, remaining=5)

    assert failure(charge()) == expected
    assert DemoLedgerEntry.objects.count() == booked
    assert isinstance(charge(), Succeeded)
    assert [fault.remaining for fault in DemoFault.objects.all()] == [0, 5]


def test_a_fault_may_be_ordered_for_one_operation():
    DemoFault.objects.create(service="payments", operation="refund", kind="permanent")

    assert isinstance(charge(), Succeeded)


def test_what_became_of_a_lost_answer_can_be_looked_up():
    assert failure(charge(order_id="lost-7", key="pay:7")) == (ErrorClass.TRANSIENT, False)
    given = {"order_id": "lost-7", "amount_cents": 500}

    found = look_up_effect(context("payments.charge", given, idempotency_key="pay:7"))
    absent = look_up_effect(context("payments.charge", given, idempotency_key="pay:8"))

    assert isinstance(found, Applied)
    assert found.output["order_id"] == "lost-7"
    assert absent == NotApplied()


@pytest.mark.django_db(transaction=True)
def test_two_calls_with_one_key_at_once_book_one_charge():
    barrier, outcomes = threading.Barrier(4), []

    def call():
        try:
            barrier.wait()
            outcomes.append(charge())
        finally:
            connection.close()

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert DemoLedgerEntry.objects.count() == 1
    assert len(outcomes) == 4
    assert all(outcome == outcomes[0] for outcome in outcomes)
    assert isinstance(outcomes[0], Succeeded)


@pytest.mark.django_db(transaction=True)
def test_two_calls_at_once_use_up_one_fault_once():
    DemoFault.objects.create(service="payments", kind="transient", remaining=1)
    barrier, outcomes = threading.Barrier(3), []

    def call(number):
        try:
            barrier.wait()
            outcomes.append(charge(order_id=f"A-{number}", key=f"pay:{number}"))
        finally:
            connection.close()

    threads = [threading.Thread(target=call, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(type(outcome).__name__ for outcome in outcomes) == [
        "Failed",
        "Succeeded",
        "Succeeded",
    ]
