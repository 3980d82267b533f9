"""Dead letters in the console: found by their partitions, and settled by hand with a reason."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from orchestrator.models import DeadLetter, Repair, Run
from tests.desk.documents import document
from tests.desk.world import Caller, published
from tests.engine import probes

pytestmark = pytest.mark.django_db


@pytest.fixture
def left(shop: Caller, carried: Any) -> Run:
    """A run that failed behind a step that cannot be undone."""
    probes.forget()
    flaky = {"type": "tool", "tool": "probe.fail", "input": {"times": 1, "kind": "permanent"}}
    say = {"type": "tool", "tool": "probe.say", "input": {"value": 1}, "irreversible": True}
    steps = {"send": say, "tell": {**flaky, "needs": ["send"], "service": "crm"}}
    published(document("sent", steps=steps))
    return carried(lambda: shop.started("sent", key="k"))


def letter_of(run: Run) -> DeadLetter:
    return DeadLetter.objects.get(run=run, reason="irreversible")


def test_they_are_listed_by_what_waits_for_a_person_and_by_service(boss: Client, left: Run) -> None:
    address = reverse("admin:orchestrator_deadletter_changelist")
    assert b"send" in boss.get(address, {"standing": "person"}).content
    crm = boss.get(address, {"service": "crm"}).content.decode()
    assert crm.count("permanent") >= 1
    assert b"0 dead letters" in boss.get(address, {"standing": "settled"}).content


def test_one_is_settled_by_hand_with_a_reason(boss: Client, left: Run) -> None:
    letter = letter_of(left)
    page = boss.get(reverse("admin:orchestrator_deadletter_change", args=[letter.pk]))
    address = reverse("admin:orchestrator_deadletter_settle", args=[letter.pk])
    assert address in page.content.decode()

    assert boss.get(address).status_code == 200
    assert boss.post(address, {"reason": "", "token": "t"}).status_code == 200
    letter.refresh_from_db()
    assert letter.settled_at is None
    done = boss.post(address, {"reason": "we wrote to them", "token": "t"}, follow=True)

    letter.refresh_from_db()
    assert (letter.settled_by, letter.settlement) == ("user:boss", "we wrote to them")
    assert b"is settled" in done.content
    assert address not in done.content.decode()
    assert Repair.objects.get(run=left).action == "settle_by_hand"
    again = boss.post(address, {"reason": "me too", "token": "u"}, follow=True)
    assert b"Not settled" in again.content


def test_whoever_may_only_look_settles_nothing(left: Run) -> None:
    client = Client()
    client.force_login(User.objects.create_user("guest", is_staff=True))
    address = reverse("admin:orchestrator_deadletter_settle", args=[letter_of(left).pk])
    assert client.post(address, {"reason": "x"}).status_code == 403
    assert client.get(reverse("admin:orchestrator_deadletter_settle", args=[0])).status_code in (
        403,
        404,
    )


def test_the_page_of_a_run_shows_its_saga(boss: Client, left: Run) -> None:
    page = boss.get(reverse("admin:orchestrator_run_change", args=[left.pk])).content.decode()
    assert 'id="saga"' in page
    assert "irreversible" in page
    task = reverse("admin:orchestrator_deadletter_change", args=[letter_of(left).pk])
    assert task in page
