"""A provider's book against ours: every way in which they can differ, and none where they agree."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.core.comparing import Listed, Receipt, compare
from orchestrator.core.effects import EffectStatus

NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)
SINCE, UNTIL = NOON - timedelta(hours=1), NOON + timedelta(hours=1)
PAID = Receipt(
    key="pay:1",
    status=EffectStatus.APPLIED,
    external_ref="R-1",
    request_hash="h1",
    response={"external_ref": "R-1", "amount_cents": 500},
    settled_at=NOON,
    run_id="run-1",
)
HAS = Listed(external_ref="R-1", idempotency_key="pay:1", at=NOON, facts={"amount_cents": 500})


def found(
    entries: list[Listed], receipts: list[Receipt], *, whole: bool = True
) -> list[tuple[str, str]]:
    differing = compare(entries, receipts, since=SINCE, until=UNTIL, whole=whole)
    return [(str(one.kind), one.external_ref) for one in differing]


def test_books_that_agree_differ_in_nothing() -> None:
    assert found([HAS], [PAID]) == []
    assert found([replace(HAS, idempotency_key="")], [PAID]) == []  # known by its reference
    assert found([], []) == []


def test_what_the_provider_has_twice_is_doubled() -> None:
    twice = [HAS, replace(HAS, external_ref="R-2")]
    assert found(twice, [PAID]) == [("doubled", "R-1")]


def test_what_we_never_meant_is_unknown() -> None:
    assert found([HAS, replace(HAS, external_ref="X", idempotency_key="")], [PAID]) == [
        ("unknown", "X")
    ]
    none = replace(PAID, status=EffectStatus.NOT_APPLIED, external_ref="")
    assert found([HAS], [none]) == [("unknown", "R-1")]


def test_a_receipt_without_its_entry_is_missing() -> None:
    assert found([], [PAID]) == [("missing", "R-1")]
    assert found([], [PAID], whole=False) == []


@pytest.mark.parametrize(
    "entry",
    [
        replace(HAS, facts={"amount_cents": 5000}),
        replace(HAS, request_hash="another"),
        replace(HAS, external_ref="R-9"),
    ],
    ids=["amount", "request", "reference"],
)
def test_what_both_have_but_not_the_same_is_different(entry: Listed) -> None:
    assert found([entry], [PAID]) == [("different", entry.external_ref)]


def test_what_we_are_in_doubt_about_and_they_have_is_unsettled() -> None:
    doubt = replace(PAID, status=EffectStatus.IN_DOUBT, external_ref="", settled_at=None)
    assert found([HAS], [doubt]) == [("unsettled", "R-1")]
    assert found([], [doubt]) == []


def test_what_lies_outside_the_time_is_not_judged() -> None:
    before, after = SINCE - timedelta(minutes=1), UNTIL + timedelta(minutes=1)
    for at in (before, after):
        assert found([replace(HAS, at=at, idempotency_key="", external_ref="X")], []) == []
        assert found([], [replace(PAID, settled_at=at)]) == []
        assert found([replace(HAS, at=at)], [PAID]) == []
