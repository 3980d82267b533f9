"""The start table of FORMAT section 2, over the test client; tests/api/test_wire.py has HTTP."""

from __future__ import annotations

import pytest

from orchestrator.models import Run
from tests.desk.documents import as_json, document
from tests.desk.world import Caller, published
from workflows_app.models import StartKey
from workflows_app.publishing import retire

pytestmark = pytest.mark.django_db

URL = "/v1/workflows/order_check"


def test_a_start_answers_201_with_the_run_and_where_to_look(shop: Caller) -> None:
    answer = shop.start(correlation_id="c-9", context={"desk": 3})

    run = Run.objects.get()
    assert answer.status == 201
    assert answer.body == {
        "instance_id": str(run.id),
        "workflow": "order_check",
        "version": 1,
        "state": "pending",
        "status_url": f"/v1/workflows/{run.id}",
    }
    assert answer.headers["Location"] == answer.body["status_url"]
    assert (run.correlation_id, run.context, run.started_by) == ("c-9", {"desk": 3}, "service:shop")
    assert run.trigger == {"type": "api"}


def test_the_same_again_answers_200_with_the_same_body_and_starts_nothing(shop: Caller) -> None:
    first = shop.start()
    again = shop.start()

    assert (again.status, again.body) == (200, first.body)
    assert again.headers["Idempotency-Replayed"] == "true"
    assert "Location" not in again.headers
    assert Run.objects.count() == 1


def test_bodies_are_the_same_when_their_canonical_json_is(shop: Caller) -> None:
    first = shop.post(URL, raw=b'{"input": {"order_id": "A", "x": 1}, "context": 1}', key="k")
    again = shop.post(URL, raw=b'{"context":1,"input":{"x":1,"order_id":"\\u0041"}}', key="k")

    assert (first.status, again.status) == (201, 200)


def test_a_key_with_another_body_is_refused(shop: Caller) -> None:
    shop.start()
    answer = shop.start(input={"order_id": "A-2"})

    assert (answer.status, answer.code) == (422, "idempotency_key_reused")
    assert Run.objects.count() == 1


def test_a_key_belongs_to_a_tenant_and_a_workflow(shop: Caller) -> None:
    published(document("other"))
    published(tenant="rival")
    answers = [shop.start(), shop.start("other"), Caller("rival").start()]

    assert [answer.status for answer in answers] == [201, 201, 201]
    assert Run.objects.count() == 3


@pytest.mark.parametrize("key", [None, "", "x" * 256, "tab\tin it", "bell\x07"])
def test_a_missing_or_odd_key_is_400(shop: Caller, key: str | None) -> None:
    answer = shop.post(URL, {"input": {"order_id": "A"}}, key=key)

    assert (answer.status, answer.code) == (400, "idempotency_key_invalid")


@pytest.mark.parametrize(
    "key", ["x", "x" * 255, "with blanks, commas", "0b9c4b4e-58a4-4f0a-9f1b-3f1f7a1f2d10", "é"]
)
def test_a_printable_key_of_up_to_255_characters_is_taken(shop: Caller, key: str) -> None:
    assert shop.start(key=key).status == 201
    assert StartKey.objects.get().key == key


def test_a_quoted_key_is_the_same_key(shop: Caller) -> None:
    shop.start(key="abc")

    assert shop.start(key='"abc"').status == 200


@pytest.mark.parametrize(
    ("raw", "code", "pointer"),
    [
        (b"{", "malformed_body", ""),
        (b'{"input": {"order_id": "A", "order_id": "B"}}', "malformed_body", "/input/order_id"),
        (b'{"input": {"order_id": NaN}}', "malformed_body", "/input/order_id"),
        (b'{"input": {"order_id": "\\u0000"}}', "malformed_body", "/input/order_id"),
        (b'{"input": {"order_id": "\xff"}}', "malformed_body", ""),
        (b'{"input": 99999999999999999999}', "malformed_body", "/input"),
        (b'{"input": ' + b"[" * 70 + b"]" * 70 + b"}", "malformed_body", None),
    ],
)
def test_bad_json_is_400_and_says_where(
    shop: Caller, raw: bytes, code: str, pointer: str | None
) -> None:
    answer = shop.post(URL, raw=raw, key="k")

    assert (answer.status, answer.code) == (400, code)
    assert pointer is None or pointer in answer.pointers
    assert not StartKey.objects.exists()


def test_an_unknown_workflow_is_404(shop: Caller) -> None:
    assert (shop.start("nothing").status, shop.start("nothing").code) == (404, "not_found")


def test_another_tenants_workflow_is_404(shop: Caller) -> None:
    assert Caller("rival").start().status == 404


def test_input_that_breaks_the_schema_is_422_with_a_pointer_for_each_fault(shop: Caller) -> None:
    answer = shop.start(input={"amount_cents": -1, "order_id": 7})

    assert (answer.status, answer.code) == (422, "input_invalid")
    assert sorted(answer.pointers) == ["/input/amount_cents", "/input/order_id"]
    assert not Run.objects.exists()


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"inputs": {}}, "/inputs"),
        ({"workflow_type": "other"}, "/workflow_type"),
        ({"version": 7}, "/version"),
        ({"version": "1"}, "/version"),
        ({"version": 0}, "/version"),
        ({"version": True}, "/version"),
        ({"correlation_id": 5}, "/correlation_id"),
        ({"correlation_id": ""}, "/correlation_id"),
        ({"business_payload": {"order_id": "B"}}, "/business_payload"),
    ],
)
def test_a_field_that_does_not_fit_is_422(shop: Caller, body: dict, pointer: str) -> None:
    answer = shop.start(**body)

    assert answer.status == 422, answer.body
    assert answer.pointers == [pointer]
    assert answer.code in ("invalid_body", "unknown_version")


@pytest.mark.parametrize("body", [[], "text", 5, None])
def test_a_body_that_is_no_object_is_422(shop: Caller, body: object) -> None:
    answer = shop.post(URL, raw=as_json(body), key="k")

    assert (answer.status, answer.code) == (422, "invalid_body")
    assert answer.body["errors"][0]["detail"].startswith("must be an object")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"correlation_id": 5}, "must be text"),
        ({"correlation_id": "a\nb"}, "a control character"),
        ({"version": "1"}, "must be a whole number"),
    ],
)
def test_what_is_wrong_with_a_field_is_said_in_words(shop: Caller, body: dict, words: str) -> None:
    assert words in shop.start(**body).body["errors"][0]["detail"]


def test_business_payload_is_another_name_for_input(shop: Caller) -> None:
    answer = shop.post(URL, {"business_payload": {"order_id": "B"}}, key="k")

    assert answer.status == 201
    assert Run.objects.get().input == {"order_id": "B"}


def test_the_workflow_type_of_the_path_and_a_published_version_may_be_named(shop: Caller) -> None:
    assert shop.start(workflow_type="order_check", version=1).status == 201


def test_refused_calls_use_up_no_key(shop: Caller) -> None:
    powerless = Caller(scopes=["run:read"])
    refused = [
        shop.post(URL, raw=b"{", key="k").status,
        powerless.start(key="k").status,
        shop.start("nothing", key="k").status,
        shop.start(key="k", input={}).status,
        shop.start(key="k", version=9).status,
    ]
    assert refused == [400, 403, 404, 422, 422]

    assert shop.start(key="k").status == 201


def test_integers_are_exact_to_64_bits_in_and_out(shop: Caller) -> None:
    large = 2**63 - 1
    run = shop.started(input={"order_id": "A", "amount_cents": large}, context=[-(2**63)])
    body = shop.get(f"/v1/workflows/{run.id}").body

    assert (body["input"]["amount_cents"], body["context"]) == (large, [-(2**63)])


def test_a_media_type_other_than_json_is_415(shop: Caller) -> None:
    answer = shop.post(URL, raw=b"input=1", key="k", media_type="application/x-www-form-urlencoded")

    assert (answer.status, answer.code) == (415, "unsupported_media_type")
    assert answer.body["detail"] == "Send the body as application/json."


def test_a_body_over_one_mebibyte_is_413(shop: Caller) -> None:
    answer = shop.start(input={"order_id": "x" * (1024 * 1024)})

    assert (answer.status, answer.code) == (413, "too_large")


def test_a_retired_workflow_starts_no_more_runs(shop: Caller) -> None:
    retire(published().version)

    assert shop.start().status == 404
    assert shop.start(version=1).code == "unknown_version"


def test_a_start_takes_few_queries(shop: Caller, django_assert_max_num_queries: object) -> None:
    shop.start(key="warm")  # the workflow is compiled once a process

    with django_assert_max_num_queries(14):  # type: ignore[operator]
        shop.start(key="k-2")


def test_an_empty_body_is_an_empty_object(shop: Caller) -> None:
    published(document("anything", input={"type": "object"}))

    assert shop.post("/v1/workflows/anything", raw=b"", key="k").status == 201
    assert Run.objects.get().input == {}
