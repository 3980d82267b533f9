"""Effects and repairs in the console: to be found and read, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client, RequestFactory
from django.urls import reverse

from orchestrator.models import Effect, Repair, Run
from tests.desk.documents import document
from tests.desk.world import Caller, published
from tests.engine import probes

pytestmark = pytest.mark.django_db


@pytest.fixture
def repaired(shop: Caller, carried: Any) -> Run:
    """A run with one effect that was applied, and one repair."""
    probes.forget()
    pay = {"type": "tool", "tool": "probe.say", "input": {"value": {"external_ref": "R-1"}}}
    flaky = {"type": "tool", "tool": "probe.fail", "input": {"times": 1, "kind": "permanent"}}
    steps = {"pay": {**pay, "effect": {"key": "pay:1"}}, "tell": {**flaky, "needs": ["pay"]}}
    published(document("paid", steps=steps))
    run = carried(lambda: shop.started("paid", key="k"))
    body = {"action": "retry_step", "step": "tell", "reason": "the line is up again"}
    carried(lambda: shop.post(f"/v1/workflows/{run.id}/repair", body, key="r"))
    return run


def found(boss: Client, model: str, term: str) -> str:
    page = boss.get(reverse(f"admin:orchestrator_{model}_changelist"), {"q": term})
    assert page.status_code == 200
    return page.content.decode()


@pytest.mark.parametrize("model", [Effect, Repair])
def test_they_are_never_edited_by_hand(model: type) -> None:
    request = RequestFactory().get("/")
    request.user = User.objects.create_superuser("root")
    pages = admin.site.get_model_admin(model)

    assert not pages.has_add_permission(request)
    assert not pages.has_change_permission(request)
    assert not pages.has_delete_permission(request)


def test_an_effect_is_found_by_its_key_and_shows_its_receipt(boss: Client, repaired: Run) -> None:
    assert "pay:1" in found(boss, "effect", "pay:1")
    assert "R-1" not in found(boss, "effect", "pay:2")
    effect = Effect.objects.get()
    page = boss.get(reverse("admin:orchestrator_effect_change", args=[effect.pk]))
    assert b"R-1" in page.content
    assert str(repaired.id).encode() in page.content


def test_a_repair_is_found_by_its_run_and_says_who_and_why(boss: Client, repaired: Run) -> None:
    assert "the line is up again" in found(boss, "repair", str(repaired.id))
    assert "the line is up again" not in found(boss, "repair", "no id")
    repair = Repair.objects.get()
    page = boss.get(reverse("admin:orchestrator_repair_change", args=[repair.pk]))
    assert b"service:shop" in page.content


def test_every_list_opens_in_few_queries(
    boss: Client, repaired: Run, django_assert_max_num_queries: Any
) -> None:
    for model in ("effect", "repair", "deadletter"):
        with django_assert_max_num_queries(10):
            assert found(boss, model, "")
