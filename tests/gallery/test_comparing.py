"""The demo payments' book compared with the engine's receipts, each night and by command."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from orchestrator.authoring import Listed, registry, tool
from orchestrator.models import Alert, Duty, Effect
from orchestrator.ops.comparing import compare_in_turn
from orchestrator.tasks import compare_providers
from tests.conftest import TurnTime
from tests.engine.carrier import Carrier
from tests.engine.conftest import carrier
from tests.engine.runs import TENANT, ran
from workflows_app.gallery.models import DemoLedgerEntry

__all__ = ["carrier"]

PAY = {
    "type": "tool",
    "tool": "demo.payments.charge",
    "input": {"order_id": "${{ input.order }}", "amount_cents": 500},
    "effect": {"key": "pay:${{ input.order }}"},
}
NEXT_DAY = 20 * 3600


def paid(carrier: Carrier, order: str) -> Effect:
    schema = {"type": "object", "properties": {"order": {"type": "string"}}}
    run = ran(carrier, {"pay": PAY}, {"order": order}, input=schema)
    return Effect.objects.get(run=run)


def printed(*args: str) -> str:
    said = StringIO()
    call_command("compare_provider", *args, stdout=said)
    return said.getvalue()


def differing() -> dict[str, int]:
    alert = Alert.objects.filter(kind="provider_mismatch", closed_at__isnull=True).first()
    return {} if alert is None else alert.detail["counts"]


def add_entry(ref: str, key: str | None) -> DemoLedgerEntry:
    first = DemoLedgerEntry.objects.order_by("id").first()
    assert first is not None
    return DemoLedgerEntry.objects.create(
        tenant=first.tenant,
        service="payments",
        operation="charge",
        idempotency_key=key,
        request=first.request,
        response={**first.response, "external_ref": ref},
    )


def test_books_that_agree_raise_nothing(carrier: Carrier, turn_time: TurnTime) -> None:
    paid(carrier, "A-1")
    turn_time(NEXT_DAY)
    compare_providers()
    assert differing() == {}
    notes = Duty.objects.get(name="compare").notes
    assert notes == {"books": 2, "listed": 1, "not_read": [], "mismatches": {}}
    assert "1 listed  1 receipts  agree" in printed("demo.payments.charge")


def test_a_payment_that_the_provider_took_twice_is_an_alert_until_it_is_given_back(
    carrier: Carrier, turn_time: TurnTime
) -> None:
    effect = paid(carrier, "A-1")
    twin = add_entry(effect.external_ref, None)
    turn_time(NEXT_DAY)
    compare_providers()
    assert differing() == {"doubled": 1}
    alert = Alert.objects.get(kind="provider_mismatch")
    assert (alert.tenant, alert.run_id) == (TENANT, effect.run_id)
    assert alert.detail["mismatches"][0]["effect_key"] == "pay:A-1"
    turn_time(5 * 86_400)  # it is looked at from where it began
    compare_providers()
    assert differing() == {"doubled": 1}
    twin.delete()
    turn_time(NEXT_DAY)
    compare_providers()
    assert differing() == {}


def test_unknown_and_missing_payments_are_told_with_a_table(
    carrier: Carrier, turn_time: TurnTime
) -> None:
    gone = paid(carrier, "A-1")
    add_entry("pay_stranger", "not-ours")
    DemoLedgerEntry.objects.filter(idempotency_key="pay:A-1").delete()
    turn_time(NEXT_DAY)
    said = StringIO()
    with pytest.raises(CommandError, match="1 books differ") as ended:
        call_command("compare_provider", stdout=said)
    assert ended.value.returncode == 1
    lines = [line.split("  ") for line in said.getvalue().splitlines()]
    rows = [[part.strip() for part in line if part.strip()] for line in lines]
    assert ["unknown", "pay_stranger", "not-ours"] in [row[:3] for row in rows]
    assert ["missing", gone.external_ref, "pay:A-1"] in [row[:3] for row in rows]
    assert differing() == {"unknown": 1, "missing": 1}


def test_two_beats_compare_once(carrier: Carrier) -> None:
    assert compare_in_turn() is not None
    assert compare_in_turn() is None


@pytest.fixture
def unread() -> Iterator[str]:
    def lists(ctx: Any, since: datetime, until: datetime) -> Iterator[Listed]:
        raise ConnectionError("the provider is away")
        yield

    @tool("probe.unread", listing=lists)
    def act() -> None:
        """Never called."""

    yield "probe.unread"
    registry._specs.pop("probe.unread")


def test_a_book_that_cannot_be_read_is_said_so(
    carrier: Carrier, unread: str, turn_time: TurnTime
) -> None:
    paid(carrier, "A-1")
    turn_time(NEXT_DAY)
    compare_providers()
    alert = Alert.objects.get(kind="provider_mismatch")
    assert alert.severity == "warning"
    assert alert.title == (
        "The book of probe.unread could not be read: ConnectionError: the provider is away"
    )


def test_a_tool_without_a_listing_is_refused_by_name() -> None:
    with pytest.raises(CommandError, match=r"no tool 'mail\.send' names a listing"):
        call_command("compare_provider", "mail.send")


@pytest.mark.django_db
def test_since_takes_an_instant_or_a_duration() -> None:
    assert printed("demo.payments.charge", "--since", "7d").startswith("No tenant")
    with pytest.raises(CommandError, match="neither an instant"):
        call_command("compare_provider", "demo.payments.charge", "--since", "soon")
