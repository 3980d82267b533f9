"""The console's pages: a GET shows, only a confirmed POST decides, and only for those who may."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.urls import reverse

from approvals_app.models import Decision, Request
from tests.approvals.builders import GATE, TENANT, ask
from workflows_app.models import Membership, Tenant

pytestmark = pytest.mark.django_db
TWO_OF_THEM = {**GATE, "quorum": 2, "message": "Pay <b>Ann</b>?", "title": "Release"}


def a_client(
    *, roles: tuple[str, ...] = (), superuser: bool = False, may_decide: bool = True
) -> Client:
    user = User.objects.create_user("ann", is_staff=True, is_superuser=superuser)
    names = ["view_request", "decide_request"] if may_decide else ["view_request"]
    user.user_permissions.set(Permission.objects.filter(codename__in=names))
    if roles:
        Membership.objects.create(user=user, tenant=Tenant.ensure(TENANT), roles=list(roles))
    client = Client()
    client.force_login(user)
    return client


def page(choice: str, request: Request) -> str:
    return reverse("admin:approvals_app_request_decide", args=[choice]) + f"?id={request.pk}"


def test_the_list_and_the_page_show_what_is_asked_and_escape_it() -> None:
    request = ask(TWO_OF_THEM)
    client = a_client()

    listed = client.get(reverse("admin:approvals_app_request_changelist"))
    shown = client.get(reverse("admin:approvals_app_request_change", args=[request.pk]))

    assert "role:finance" in listed.content.decode()
    text = shown.content.decode()
    assert "Pay &lt;b&gt;Ann&lt;/b&gt;?" in text
    assert "Dear Ann" in text
    assert "Approve …" in text


def test_a_get_of_the_confirmation_page_decides_nothing() -> None:
    request = ask(TWO_OF_THEM)

    answer = a_client(roles=("finance",)).get(page("approve", request))

    assert answer.status_code == 200
    assert "Yes, approve" in answer.content.decode()
    assert not Decision.objects.exists()


def test_a_confirmed_post_decides_in_the_users_name_with_the_notes() -> None:
    request = ask(TWO_OF_THEM)
    client = a_client(roles=("finance",))

    answer = client.post(page("approve", request), {"id": str(request.pk), "notes": "ok"})

    assert answer.status_code == 302
    decision = Decision.objects.get()
    assert (decision.by, decision.choice, decision.notes) == ("user:ann", "approve", "ok")


def test_a_user_without_the_gates_role_is_told_so_and_decides_nothing() -> None:
    request = ask(TWO_OF_THEM)
    client = a_client(roles=("moderator",))

    answer = client.post(page("approve", request), {"id": str(request.pk)}, follow=True)

    assert "This approval is for role:finance." in answer.content.decode()
    assert not Decision.objects.exists()


def test_a_superuser_may_stand_in_for_anybody() -> None:
    request = ask(TWO_OF_THEM)

    a_client(superuser=True).post(page("approve", request), {"id": str(request.pk)})

    assert Decision.objects.get().by == "user:ann"


def test_a_django_group_is_a_group_of_assignees() -> None:
    request = ask({**TWO_OF_THEM, "assignees": ["group:emea"]})
    client = a_client()
    User.objects.get().groups.add(Group.objects.create(name="emea"))

    client.post(page("approve", request), {"id": str(request.pk)})

    assert Decision.objects.count() == 1


def test_without_the_permission_there_is_no_button_and_no_page() -> None:
    request = ask(TWO_OF_THEM)
    client = a_client(roles=("finance",), may_decide=False)

    shown = client.get(reverse("admin:approvals_app_request_change", args=[request.pk]))
    refused = client.post(page("approve", request), {"id": str(request.pk)})

    assert "Approve …" not in shown.content.decode()
    assert refused.status_code == 403
    assert not Decision.objects.exists()


def test_nothing_of_an_approval_can_be_edited_or_deleted() -> None:
    request = ask(TWO_OF_THEM)
    client = a_client(superuser=True)
    change = reverse("admin:approvals_app_request_change", args=[request.pk])
    delete = reverse("admin:approvals_app_request_delete", args=[request.pk])

    assert client.post(change, {"state": "decided"}).status_code == 403
    assert client.post(delete, {"post": "yes"}).status_code == 403
    request.refresh_from_db()
    assert request.state == "open"


def test_chosen_rows_of_the_list_lead_to_one_confirmation_page() -> None:
    first, second = ask(TWO_OF_THEM), ask(TWO_OF_THEM)
    client = a_client(roles=("finance",))
    chosen = {"action": "reject_selected", "_selected_action": [str(first.pk), str(second.pk)]}

    answer = client.post(reverse("admin:approvals_app_request_changelist"), chosen, follow=True)

    text = answer.content.decode()
    assert "Reject 2 approvals" in text
    assert str(first.pk) in text
    assert not Decision.objects.exists()


def test_a_form_that_is_not_filled_is_explained_on_the_page() -> None:
    form = {"type": "object", "required": ["limit"]}
    request = ask({**TWO_OF_THEM, "form": form})
    client = a_client(roles=("finance",))

    answer = client.post(page("approve", request), {"id": str(request.pk)}, follow=True)

    assert "limit" in answer.content.decode()
    assert not Decision.objects.exists()


def test_an_unknown_choice_is_refused() -> None:
    request = ask(TWO_OF_THEM)

    answer = a_client().get(page("maybe", request))

    assert answer.status_code == 403


def test_ids_that_are_none_choose_nothing() -> None:
    client = a_client()

    answer = client.get(reverse("admin:approvals_app_request_decide", args=["approve"]) + "?id=x")

    assert "Nothing was chosen." in answer.content.decode()
