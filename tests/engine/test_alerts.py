"""Alerts: one open row for a matter, whoever says it and how often."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import IntegrityError, connection

from orchestrator.models import Alert
from orchestrator.models.alert_rows import close_alert, open_alert
from tests.conftest import TurnTime


@pytest.mark.django_db
def test_an_alert_that_is_open_counts_the_sighting(turn_time: TurnTime) -> None:
    assert open_alert("stuck", "r1", title="it stands", detail={"a": 1}, tenant="acme")
    turn_time(60)
    assert not open_alert("stuck", "r1", title="it still stands", severity="critical")
    alert = Alert.objects.get()
    assert (alert.count, alert.title, alert.severity) == (2, "it still stands", "critical")
    assert (alert.last_seen_at - alert.opened_at).total_seconds() == 60
    assert (alert.tenant, alert.detail, alert.closed_at) == ("acme", {}, None)


@pytest.mark.django_db
def test_a_closed_alert_stays_and_the_next_is_a_new_row() -> None:
    open_alert("stuck", "r1", title="it stands")
    assert close_alert("stuck", "r1")
    assert not close_alert("stuck", "r1")
    assert open_alert("stuck", "r1", title="again")
    assert [alert.closed_at is None for alert in Alert.objects.order_by("id")] == [False, True]


@pytest.mark.django_db
def test_kinds_and_keys_are_apart() -> None:
    assert open_alert("stuck", "r1", title="one")
    assert open_alert("orphan", "r1", title="two")
    assert open_alert("stuck", "r2", title="three")


@pytest.mark.django_db
def test_what_strangers_said_can_be_stored() -> None:
    open_alert("x", "1", title="nul \x00", detail={"error": ["half \ud800", {"n\x00": 1}]})
    alert = Alert.objects.get()
    assert alert.title == "nul \N{REPLACEMENT CHARACTER}"
    assert alert.detail == {"error": ["half ?", {"n\N{REPLACEMENT CHARACTER}": 1}]}


@pytest.mark.django_db
def test_a_severity_that_does_not_exist_is_refused() -> None:
    with pytest.raises(IntegrityError, match="orchestrator_alert_severity"):
        open_alert("x", "1", title="t", severity="loud")  # type: ignore[arg-type]


@pytest.mark.django_db(transaction=True)
def test_many_at_once_open_one_alert() -> None:
    together = threading.Barrier(8)

    def say(_: int) -> bool:
        together.wait()
        try:
            return open_alert("orphan", "r1", title="lost")
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(say, range(8)))
    assert sum(answers) == 1
    assert Alert.objects.get().count == 8
