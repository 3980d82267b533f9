"""Services in the console: seen on one page, held and released by a confirmed POST."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from orchestrator import engine
from orchestrator.models import Hold

pytestmark = pytest.mark.django_db

LIST = "admin:orchestrator_breaker_changelist"
HOLD, RELEASE = "admin:orchestrator_breaker_hold", "admin:orchestrator_breaker_release"
ERP = {"scope": "service", "name": "erp"}


def test_a_link_asks_and_only_a_post_with_a_reason_holds(boss: Client) -> None:
    asked = boss.get(reverse(HOLD), ERP)
    assert b'value="erp"' in asked.content
    without = boss.post(reverse(HOLD), {**ERP, "reason": ""})
    assert without.status_code == 200
    assert not Hold.objects.exists()

    done = boss.post(reverse(HOLD), {**ERP, "reason": "outage"}, follow=True)
    page = done.content.decode()
    assert "Service erp is held." in page
    assert "held by user:boss: outage" in page
    assert Hold.objects.get().actor == "user:boss"


def test_it_is_released_and_both_stand_in_the_list_of_holds(boss: Client) -> None:
    engine.hold("service", "erp", reason="outage", actor="user:ann")
    boss.post(reverse(RELEASE), {**ERP, "reason": "well again"})
    again = boss.post(reverse(RELEASE), {**ERP, "reason": "well again"})

    assert b"Not released: service erp is not held." in again.content
    page = boss.get(reverse("admin:orchestrator_hold_changelist")).content.decode()
    assert "user:ann" in page
    assert "well again" in page


def test_what_cannot_be_held_is_refused_in_words(boss: Client) -> None:
    nameless = boss.post(reverse(HOLD), {"scope": "service", "name": "", "reason": "x"})
    assert b"Not held: name: name the service." in nameless.content
    assert boss.get(reverse(HOLD), {"scope": "planet"}).status_code == 404


def test_who_may_only_look_cannot_hold(db: None) -> None:
    looker = User.objects.create_user("looker", is_staff=True)
    looker.user_permissions.add(Permission.objects.get(codename="view_breaker"))
    client = Client()
    client.force_login(looker)

    page = client.get(reverse(LIST))
    assert page.status_code == 200
    assert b"Hold something" not in page.content
    assert client.post(reverse(HOLD), {**ERP, "reason": "x"}).status_code == 403
