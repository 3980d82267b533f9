"""Outside services over the API: seen by who may see, held by who may hold."""

from __future__ import annotations

import pytest
from django.utils import timezone

from orchestrator.models import Breaker, Hold
from tests.desk.world import Caller
from workflows_app.api.breakers import ServiceAnswer, ServicesAnswer

pytestmark = pytest.mark.django_db

HOLD, RELEASE = "/v1/services/erp/hold", "/v1/services/erp/release"


def test_a_service_is_held_shown_and_released(shop: Caller) -> None:
    held = shop.post(HOLD, {"reason": "outage", "until": "2200-01-01T00:00:00Z"})
    ServiceAnswer.model_validate(held.body)
    assert (held.status, held.body["state"]) == (200, "held")
    assert held.body["hold"]["reason"] == "outage"

    listed = shop.get("/v1/services")
    ServicesAnswer.model_validate(listed.body)
    assert "erp" in {one["name"] for one in listed.body["results"]}

    released = shop.post(RELEASE, {"reason": "over"})
    assert (released.status, released.body["state"]) == (200, "closed")
    row = Hold.objects.get()
    assert row.actor == row.released_by
    assert row.release_reason == "over"


def test_holding_twice_and_releasing_what_is_free_is_409(shop: Caller) -> None:
    assert shop.post(RELEASE, {"reason": "over"}).status == 409
    shop.post(HOLD, {"reason": "outage"})
    assert shop.post(HOLD, {"reason": "outage"}).status == 409


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"reason": ""},
        {"reason": "   "},
        {"reason": "x", "until": "2020-01-01T00:00:00Z"},
        {"reason": "x", "until": "2200-01-01T00:00:00"},
        {"reason": "x", "until": "soon"},
        {"reason": "x", "until": "9999-12-31T23:59:59-23:59"},
        {"reason": "x", "for": "4h"},
    ],
)
def test_a_hold_that_makes_no_sense_is_422_with_its_place(shop: Caller, body: object) -> None:
    answer = shop.post(HOLD, body)

    assert answer.status == 422
    assert answer.body["errors"][0]["pointer"]
    assert not Hold.objects.exists()


def test_a_name_may_hold_a_slash(shop: Caller) -> None:
    assert shop.post("/v1/services/erp/eu/hold", {"reason": "outage"}).body["name"] == "erp/eu"
    assert shop.post("/v1/services/erp/eu/release", {"reason": "over"}).status == 200


@pytest.mark.parametrize("name", ["a%00b", "a%07b", "x" * 256])
def test_a_name_that_is_none_is_422_at_its_place(shop: Caller, name: str) -> None:
    answer = shop.post(f"/v1/services/{name}/hold", {"reason": "outage"})

    assert (answer.status, answer.pointers) == (422, ["/name"])


def test_what_one_tenants_calls_heard_is_told_to_no_other(shop: Caller) -> None:
    for name in ("erp", "probe"):
        Breaker.objects.create(
            service=name,
            state="open",
            since=timezone.now(),
            updated_at=timezone.now(),
            last_error="order 4711 of shop was refused",
            last_tenant=shop.token.tenant_id,
        )
    hold = {"reason": "looking"}
    assert shop.post("/v1/services/probe/hold", hold).status == 200

    mine = {one["name"]: one for one in shop.get("/v1/services").body["results"]}
    theirs = {one["name"]: one for one in Caller("other").get("/v1/services").body["results"]}

    assert "4711" in mine["erp"]["last_error"]
    assert "erp" not in theirs, "a service that only the other tenant's documents name"
    assert (theirs["probe"]["state"], theirs["probe"]["last_error"]) == ("held", "")


def test_another_tenants_own_service_is_not_there(shop: Caller) -> None:
    mine, theirs = f"crm@{shop.token.tenant_id}", "crm@other"

    assert shop.post(f"/v1/services/{theirs}/hold", {"reason": "x"}).status == 404
    assert shop.post(f"/v1/services/{theirs}/release", {"reason": "x"}).status == 404
    assert shop.post(f"/v1/services/{mine}/hold", {"reason": "x"}).body["state"] == "held"
    assert mine in {one["name"] for one in shop.get("/v1/services").body["results"]}
    others = Caller("other").get("/v1/services").body["results"]
    assert mine not in {one["name"] for one in others}
