"""Outside services over the API: seen by who may see, held by who may hold."""

from __future__ import annotations

import pytest

from orchestrator.models import Hold
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
        {"reason": "x", "for": "4h"},
    ],
)
def test_a_hold_that_makes_no_sense_is_422_with_its_place(shop: Caller, body: object) -> None:
    answer = shop.post(HOLD, body)

    assert answer.status == 422
    assert answer.body["errors"][0]["pointer"]
    assert not Hold.objects.exists()
