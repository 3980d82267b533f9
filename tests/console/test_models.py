"""Models in the console: where aliases lead, and the turns of a step's conversations."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from orchestrator.models import ModelAlias, Turn
from tests.engine.runs import ran, step
from tests.llm.conftest import fresh_aliases

__all__ = ["fresh_aliases"]

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fresh_aliases")]
LIST = "admin:orchestrator_modelalias_changelist"
LEAD = "admin:orchestrator_modelalias_lead"
FAST = {"name": "fast", "targets": "offline:echo\noffline:demo\n", "reason": "cheaper"}


def test_a_link_asks_and_only_a_post_with_a_reason_changes_an_alias(boss: Client) -> None:
    asked = boss.get(reverse(LEAD), {"name": "fast"}).content.decode()
    assert "offline:demo" in asked
    assert boss.post(reverse(LEAD), {**FAST, "reason": ""}).status_code == 200
    assert not ModelAlias.objects.exists()

    page = boss.post(reverse(LEAD), FAST, follow=True).content.decode()

    assert "Alias fast leads to offline:echo then offline:demo." in page
    assert "offline:echo, then offline:demo" in page
    assert "the console" in page
    assert "cheaper" in page
    assert ModelAlias.objects.get().actor == "user:boss"


def test_an_alias_that_leads_nowhere_is_refused_beside_its_field(boss: Client) -> None:
    page = boss.post(reverse(LEAD), {**FAST, "targets": "nowhere:x"}).content.decode()

    assert "is no provider:model that this installation has" in page
    assert not ModelAlias.objects.exists()


def test_who_may_only_look_changes_nothing(db: None) -> None:
    looker = User.objects.create_user("looker", is_staff=True)
    looker.user_permissions.add(Permission.objects.get(codename="view_modelalias"))
    client = Client()
    client.force_login(looker)

    page = client.get(reverse(LIST))
    assert page.status_code == 200
    assert b"Lead elsewhere" not in page.content
    assert client.post(reverse(LEAD), FAST).status_code == 403


@pytest.mark.django_db(transaction=True)
def test_the_page_of_a_step_shows_its_turns(boss: Client, carrier: Any) -> None:
    agent = {"type": "agent", "model": "offline:echo", "prompt": "<b>hello</b>"}
    router = {
        "type": "router",
        "strategy": "llm",
        "model": "offline:echo",
        "question": "left or right?",
        "default": "left",
        "routes": [{"id": "left", "to": []}, {"id": "right", "to": []}],
    }
    run = ran(carrier, {"a": agent, "r": router})
    assert Turn.objects.count() == 2

    pages = [
        boss.get(
            reverse("admin:orchestrator_run_step", args=[run.pk, step(run, key).pk])
        ).content.decode()
        for key in ("a", "r")
    ]

    assert "&lt;b&gt;hello&lt;/b&gt;" in pages[0]
    assert "offline:echo" in pages[0]
    assert "What it was told" in pages[1]
    assert "left or right?" in pages[1]
