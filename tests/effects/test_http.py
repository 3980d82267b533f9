"""HTTP calls as effects: the key travels in a header, the answer is the receipt."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from orchestrator.core.effects import response_hash
from orchestrator.models import Effect
from tests.adapters.web import Web
from tests.engine.carrier import Carrier
from tests.engine.runs import error, events, output, payload, ran, state, step


@pytest.fixture
def shop(web: Web, options: Any) -> Web:
    options(HTTP_ALLOW_PRIVATE=[f"127.0.0.1:{web.port}"])
    return web


def charge(shop: Web, *, effect: Any = None, **given: Any) -> dict[str, Any]:
    data = {"method": "POST", "url": f"{shop.url}/charges", "json": {"cents": 5}, **given}
    effect = {"key": "pay:1", **(effect or {})}
    return {"type": "tool", "tool": "http.request", "input": data, "effect": effect}


def says(shop: Web, body: bytes, status: int = 201, **headers: str) -> None:
    shop.answer("/charges", status, body, Content_Type="application/json", **headers)


def test_the_key_is_sent_and_the_answer_is_the_receipt(carrier: Carrier, shop: Web) -> None:
    says(shop, b'{"id": "ch_1", "status": "captured"}')

    run = ran(carrier, {"a": charge(shop)})

    (seen,) = shop.seen
    assert seen.headers["idempotency-key"] == "pay:1"
    answer = output(run)["a"]
    effect = Effect.objects.get()
    assert (effect.status, effect.external_ref, effect.response) == ("applied", "ch_1", answer)
    assert effect.response["status"] == 201
    assert effect.response_hash == response_hash(answer)
    receipt = payload(run, "effect.receipt")
    assert (receipt["external_ref"], receipt["response_hash"]) == ("ch_1", effect.response_hash)


def test_a_provider_may_want_the_key_in_a_header_of_its_own(carrier: Carrier, shop: Web) -> None:
    says(shop, b"{}")

    ran(carrier, {"a": charge(shop, key_header="X-Request-Id")})

    assert shop.seen[0].headers["x-request-id"] == "pay:1"
    assert "idempotency-key" not in shop.seen[0].headers


@pytest.mark.parametrize("name", ["Idempotency-Key", "idempotency-key", "IDEMPOTENCY-KEY"])
def test_no_header_of_the_document_takes_the_place_of_the_key(
    carrier: Carrier, shop: Web, name: str
) -> None:
    """Publishing refuses it where it can see it; headers may also come with the input."""
    says(shop, b"{}")

    ran(carrier, {"a": charge(shop, headers="${{ input.headers }}")}, {"headers": {name: "mine"}})

    assert shop.seen[0].headers["idempotency-key"] == "pay:1"


def test_without_an_effect_the_header_is_the_documents(carrier: Carrier, shop: Web) -> None:
    says(shop, b"{}")
    step = charge(shop, headers={"Idempotency-Key": "mine"})
    del step["effect"]

    ran(carrier, {"a": step})

    assert shop.seen[0].headers["idempotency-key"] == "mine"


@pytest.mark.parametrize(
    ("body", "reference", "expected"),
    [
        (b'{"external_ref": "r", "id": 7}', None, "r"),
        (b'{"id": 7}', None, "7"),
        (b'{"id": true}', None, "/charges/9"),
        (b"[1]", None, "/charges/9"),
        (b'{"data": [{"a/b": "deep"}]}', "/data/0/a~1b", "deep"),
        (b'{"id": 7}', "/none/9", "/charges/9"),
        (b'{"data": []}', "/data/3", "/charges/9"),
    ],
)
def test_the_providers_own_name_is_found(
    carrier: Carrier, shop: Web, body: bytes, reference: str | None, expected: str
) -> None:
    says(shop, body, Location="/charges/9")

    ran(carrier, {"a": charge(shop, **({} if reference is None else {"reference": reference}))})

    assert Effect.objects.get().external_ref == expected


def test_a_receipt_that_is_there_is_the_answer_of_every_later_run(
    carrier: Carrier, shop: Web
) -> None:
    says(shop, b'{"id": "ch_1"}')

    first, second = (ran(carrier, {"a": charge(shop)}) for _ in range(2))

    assert len(shop.seen) == 1
    assert output(first) == output(second)
    assert "effect.found" in events(second, "a")


def test_one_key_for_two_requests_is_refused_and_the_first_holder_is_named(
    carrier: Carrier, shop: Web
) -> None:
    says(shop, b'{"id": "ch_1"}')
    first = ran(carrier, {"pay": charge(shop)})

    second = ran(carrier, {"again": charge(shop, json={"cents": 6})})

    assert (state(second), len(shop.seen)) == ("failed", 1)
    said = error(second)
    assert said["class"] == "permanent"
    told = step(second, "again").error
    assert told["details"]["code"] == "effect_key_reused"
    assert f"step pay of run {first.pk}, tool http.request" in told["message"]
    assert Effect.objects.get().run_id == first.pk


def test_an_answer_that_was_never_read_leaves_the_effect_in_doubt(
    carrier: Carrier, shop: Web
) -> None:
    def cut(handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = True
        handler.connection.close()

    shop.answers["/charges"] = cut

    run = ran(carrier, {"a": charge(shop)})

    run.refresh_from_db()
    assert (run.state, run.waiting_for, len(shop.seen)) == ("waiting", "review", 1)
    assert Effect.objects.get().status == "in_doubt"


def test_what_certainly_never_left_is_no_doubt(carrier: Carrier, shop: Web) -> None:
    run = ran(carrier, {"a": charge(shop, url="http://127.0.0.1:9/charges")})

    assert (state(run), step(run, "a").error["class"]) == ("failed", "permanent")
    assert Effect.objects.get().status == "not_applied"
