"""The gate's lines of the API table (FORMAT section 2), over HTTP with real tokens."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from approvals_app.models import Decision, Request
from tests.approvals.builders import GATE, TENANT, ask
from tests.approvals.runs import asking
from tests.engine.carrier import Carrier
from workflows_app.models import ApiToken, Tenant

pytestmark = pytest.mark.django_db
TWO_OF_THEM = {**GATE, "quorum": 2, "title": "Release", "message": "Pay?"}
BOTH = ("gate:read", "gate:decide")


class Api:
    """A client with a token of its own."""

    def __init__(
        self,
        *,
        actor: str = "user:ann",
        tenant: str = TENANT,
        roles: tuple[str, ...] = ("finance",),
        scopes: tuple[str, ...] = BOTH,
    ) -> None:
        _, secret = ApiToken.objects.issue(
            Tenant.ensure(tenant), name="t", actor=actor, scopes=scopes, roles=roles
        )
        self.client = Client(headers={"Authorization": f"Bearer {secret}"})

    def get(self, path: str, **query: str) -> Any:
        return self.client.get(f"/v1/approvals{path}", query)

    def decide(self, request: Request, body: Any) -> Any:
        return self.client.post(
            f"/v1/approvals/{request.pk}/decision", body, content_type="application/json"
        )


def test_an_approval_is_shown_with_all_its_fields() -> None:
    request = ask({**TWO_OF_THEM, "form": {"type": "object"}})

    answer = Api().get(f"/{request.pk}")

    assert answer.status_code == 200
    shown = answer.json()
    assert {
        "id": str(request.pk),
        "instance_id": str(request.run_id),
        "workflow": "order",
        "step": "approve",
        "state": "open",
        "message": "Pay?",
        "form": {"type": "object"},
        "assignees": ["role:finance"],
        "upstream": {"draft": {"text": "Dear Ann"}},
        "decisions": [],
    }.items() <= shown.items()
    assert shown["due_at"].endswith("Z")


def test_the_list_shows_open_ones_newest_first_and_others_when_asked() -> None:
    first, second, closed = ask(), ask(), ask()
    Request.objects.filter(pk=closed.pk).close("expired", by="system:timeout")
    api = Api()

    def ids(**query: str) -> list[str]:
        return [each["id"] for each in api.get("", **query).json()["results"]]

    assert ids() == [str(second.pk), str(first.pk)]
    assert ids(state="expired") == [str(closed.pk)]
    assert ids(state="all") == [str(closed.pk), str(second.pk), str(first.pk)]
    assert ids(instance_id=str(first.run_id)) == [str(first.pk)]
    assert ids(workflow="other") == []


def test_the_list_comes_in_pages() -> None:
    requests = [ask() for _ in range(5)]
    api, seen, cursor = Api(), [], ""

    while cursor is not None:
        query = {"limit": "2"} | ({"cursor": cursor} if cursor else {})
        page = api.get("", **query).json()
        assert len(page["results"]) <= 2
        seen += [each["id"] for each in page["results"]]
        cursor = page["next"]

    assert seen == [str(each.pk) for each in reversed(requests)]


def test_the_lists_queries_do_not_grow_with_its_rows(django_assert_max_num_queries: Any) -> None:
    for _ in range(6):
        ask(TWO_OF_THEM)
    api = Api()
    api.get("")

    with django_assert_max_num_queries(5):
        assert len(api.get("").json()["results"]) == 6


@pytest.mark.parametrize(
    "query", [{"state": "done"}, {"instance_id": "7"}, {"limit": "0"}, {"cursor": "x"}]
)
def test_a_query_that_cannot_be_meant_is_refused(query: dict[str, str]) -> None:
    answer = Api().get("", **query)

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == f"/{next(iter(query))}"


@pytest.mark.django_db(transaction=True)
def test_a_decision_answers_with_the_approval_and_again_with_the_same(carrier: Carrier) -> None:
    request = asking(carrier)
    api = Api()

    first = api.decide(request, {"decision": "approve", "notes": "ok"})
    again = api.decide(request, {"decision": "approve", "notes": "ok"})

    assert first.status_code == again.status_code == 200
    assert first.json() == again.json()
    assert first.json()["state"] == "decided"
    said = first.json()["decisions"]
    assert [(d["by"], d["decision"], d["notes"]) for d in said] == [("user:ann", "approve", "ok")]


@pytest.mark.django_db(transaction=True)
def test_a_gate_decided_otherwise_is_a_conflict_that_names_its_state(carrier: Carrier) -> None:
    request = asking(carrier)
    Api().decide(request, {"decision": "approve"})

    answer = Api(actor="user:bob").decide(request, {"decision": "reject"})

    assert answer.status_code == 409
    assert answer["content-type"] == "application/problem+json"
    assert answer.json()["state"] == "decided"
    assert answer.json()["code"] == "approval_decided"


def test_somebody_elses_gate_is_forbidden() -> None:
    answer = Api(roles=("moderator",)).decide(ask(TWO_OF_THEM), {"decision": "approve"})

    assert answer.status_code == 403
    assert answer.json()["code"] == "not_an_assignee"
    assert not Decision.objects.exists()


def test_the_starter_of_a_four_eyes_gate_is_forbidden() -> None:
    answer = Api(actor="user:starter").decide(
        ask({**TWO_OF_THEM, "four_eyes": True}), {"decision": "approve"}
    )

    assert answer.status_code == 403


def test_another_tenants_approval_is_not_found_and_not_listed() -> None:
    request = ask(TWO_OF_THEM)
    api = Api(tenant="rivals")

    assert api.get(f"/{request.pk}").status_code == 404
    assert api.decide(request, {"decision": "approve"}).status_code == 404
    assert api.get("", state="all").json()["results"] == []


@pytest.mark.parametrize(
    ("scopes", "reads", "decides"),
    [(("gate:read",), 200, 403), (("gate:decide",), 403, 200), ((), 403, 403)],
)
def test_each_call_needs_its_scope(scopes: tuple[str, ...], reads: int, decides: int) -> None:
    request = ask(TWO_OF_THEM)
    api = Api(scopes=scopes)

    assert api.get("").status_code == reads
    assert api.get(f"/{request.pk}").status_code == reads
    assert api.decide(request, {"decision": "approve"}).status_code == decides


def test_without_a_token_nobody_gets_in() -> None:
    request = ask()

    assert Client().get("/v1/approvals").status_code == 401
    assert Client().get(f"/v1/approvals/{request.pk}").status_code == 401
    assert Client().post(f"/v1/approvals/{request.pk}/decision").status_code == 401


@pytest.mark.parametrize(
    ("body", "status", "pointer"),
    [
        ({}, 422, "/decision"),
        ({"decision": "maybe"}, 422, "/decision"),
        ({"decision": "approve", "comment": "x"}, 422, "/comment"),
        ({"decision": "approve", "notes": ["x"]}, 422, "/notes"),
        ([], 422, ""),
        ("{", 400, None),
        ('{"decision": "approve", "decision": "reject"}', 400, None),
        ('{"decision": "approve", "notes": "\\u0000"}', 400, None),
    ],
)
def test_a_bad_body_is_refused_and_decides_nothing(
    body: Any, status: int, pointer: str | None
) -> None:
    answer = Api().decide(ask(TWO_OF_THEM), body)

    assert answer.status_code == status
    if pointer is not None:
        assert answer.json()["errors"][0]["pointer"] == pointer
        assert "DecisionBody" not in answer.text
    assert not Decision.objects.exists()


def test_data_against_the_form_is_refused_with_a_pointer() -> None:
    form = {"type": "object", "properties": {"limit": {"type": "integer"}}}

    answer = Api().decide(
        ask({**TWO_OF_THEM, "form": form}), {"decision": "approve", "data": {"limit": "much"}}
    )

    assert answer.status_code == 422
    assert answer.json()["code"] == "form_invalid"
    assert answer.json()["errors"][0]["pointer"] == "/data/limit"


def test_an_unknown_id_is_not_found() -> None:
    assert Api().get(f"/{uuid4()}").status_code == 404
    assert Api().get("/7").status_code == 404
