"""Alerts in the console: open ones first, each to be read, none to be edited."""

from __future__ import annotations

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client, RequestFactory
from django.urls import reverse

from orchestrator.clock import new_id
from orchestrator.models import Alert
from orchestrator.models.alert_rows import close_alert, open_alert

pytestmark = pytest.mark.django_db

LIST = "admin:orchestrator_alert_changelist"


@pytest.fixture
def alerts() -> None:
    open_alert("stuck", "r1", title="a run stands", run_id=new_id(), detail={"since": "noon"})
    open_alert("dead_letter", "2", title="a step gave up", severity="critical", tenant="acme")
    open_alert("orphan", "r3", title="it was lost")
    close_alert("orphan", "r3")


def listed(boss: Client, **query: str) -> str:
    page = boss.get(reverse(LIST), query)
    assert page.status_code == 200
    return page.content.decode()


def test_the_list_shows_open_alerts_until_others_are_asked_for(boss: Client, alerts: None) -> None:
    page = listed(boss)
    assert "a run stands" in page
    assert "a step gave up" in page
    assert "it was lost" not in page
    assert "it was lost" in listed(boss, state="closed")
    assert "a run stands" not in listed(boss, state="closed")
    assert "it was lost" in listed(boss, state="all")
    assert "a run stands" in listed(boss, state="all")


def test_the_list_is_narrowed_by_kind_and_severity(boss: Client, alerts: None) -> None:
    assert "a step gave up" not in listed(boss, kind="stuck")
    assert "a run stands" not in listed(boss, severity="critical")


def test_an_alert_shows_what_was_seen(boss: Client, alerts: None) -> None:
    alert = Alert.objects.get(kind="stuck")
    page = boss.get(reverse("admin:orchestrator_alert_change", args=[alert.pk]))
    assert "noon" in page.content.decode()
    assert str(alert.run_id) in page.content.decode()


def test_alerts_are_never_edited_by_hand() -> None:
    request = RequestFactory().get("/")
    request.user = User.objects.create_superuser("root")
    pages = admin.site.get_model_admin(Alert)
    assert not pages.has_add_permission(request)
    assert not pages.has_change_permission(request)
    assert not pages.has_delete_permission(request)
