"""Every page of the console opens, and none lets anybody edit or delete what happened."""

from __future__ import annotations

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client, RequestFactory
from django.urls import reverse

from orchestrator.models import Blueprint, DeadLetter, Run
from tests.desk.documents import document
from tests.desk.world import TENANT, Caller, published
from workflows_app.models import ApiToken, Membership, Role, Tenant, Workflow, WorkflowVersion

pytestmark = pytest.mark.django_db

FROZEN = [Run, Blueprint, DeadLetter, Workflow, WorkflowVersion, ApiToken]


@pytest.mark.parametrize("model", FROZEN)
def test_state_is_never_edited_by_hand(model: type) -> None:
    request = RequestFactory().get("/")
    request.user = User.objects.create_superuser("root")
    pages = admin.site.get_model_admin(model)

    assert not pages.has_add_permission(request)
    assert not pages.has_change_permission(request)
    assert not pages.has_delete_permission(request)
    assert "delete_selected" not in pages.get_actions(request)


def test_every_list_and_form_opens(boss: Client, shop: Caller, waiting: Run) -> None:
    request = RequestFactory().get("/")
    request.user = User.objects.get(username="boss")
    for model, pages in admin.site._registry.items():
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        assert boss.get(reverse(f"{name}_changelist")).status_code == 200, name
        if pages.has_add_permission(request):
            assert boss.get(reverse(f"{name}_add")).status_code == 200, name
        row = model._default_manager.first()
        if row is not None:
            assert boss.get(reverse(f"{name}_change", args=[row.pk])).status_code == 200, name


def test_the_front_door_leads_to_the_console(client: Client) -> None:
    answer = client.get("/")

    assert (answer.status_code, answer.headers["Location"]) == (302, "/admin/")


def chosen(boss: Client, name: str, action: str, pk: int, **more: str):
    data = {"action": action, "_selected_action": str(pk), **more}
    return boss.post(reverse(f"admin:workflows_app_{name}_changelist"), data, follow=True)


def test_a_token_is_revoked_after_a_page_that_asks(boss: Client) -> None:
    caller = Caller()
    asked = chosen(boss, "apitoken", "revoke", caller.token.pk)
    assert b"Revoke these tokens?" in asked.content
    assert caller.get("/v1/workflows").status == 200

    chosen(boss, "apitoken", "revoke", caller.token.pk, confirmed="yes")
    assert caller.get("/v1/workflows").status == 401


def test_a_version_is_retired_and_the_newest_left_is_the_default(boss: Client) -> None:
    published()
    second = published(document(title="Another")).version
    assert b"Retire these versions?" in chosen(boss, "workflowversion", "retire", second.pk).content
    chosen(boss, "workflowversion", "retire", second.pk, confirmed="yes")

    assert WorkflowVersion.objects.get(pk=second.pk).state == "retired"
    assert WorkflowVersion.objects.get(is_default=True).number == 1


def test_a_new_tenant_has_the_shipped_roles(boss: Client) -> None:
    boss.post(reverse("admin:workflows_app_tenant_add"), {"slug": "newco", "name": "New"})

    assert Role.objects.filter(tenant="newco").count() == 5


def test_a_member_gets_scopes_and_roles_that_exist(boss: Client) -> None:
    Tenant.ensure(TENANT)
    ann = User.objects.create_user("ann")
    form = {"user": ann.pk, "tenant": TENANT, "scopes": ["run:read"]}
    wrong = boss.post(reverse("admin:workflows_app_membership_add"), {**form, "roles": "kings"})
    assert b"has no role" in wrong.content

    boss.post(reverse("admin:workflows_app_membership_add"), {**form, "roles": "finance, operator"})
    member = Membership.objects.get()
    assert (member.roles, member.scopes) == (["finance", "operator"], ["run:read"])
