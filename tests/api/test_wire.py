"""The start table of FORMAT section 2, line by line, over real HTTP."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import psycopg
import pytest
from django.db import connection

from orchestrator.models import Run
from tests.api.serving import served, served_without_servers
from tests.desk.world import TENANT, Caller, published
from tests.engine.carrier import Carrier
from workflows_app.models import StartKey

pytestmark = pytest.mark.django_db(transaction=True)

PATH = "/v1/workflows/order_check"
BODY = {"input": {"order_id": "A-1"}}


@pytest.fixture
def web(carrier: Carrier) -> Iterator[httpx.Client]:
    """A client with a token, and a workflow to start."""
    published()
    headers = {"Authorization": f"Bearer {Caller().secret}"}
    with served() as address, httpx.Client(base_url=address, headers=headers) as client:
        yield client


def post(web: httpx.Client, key: str | None = "k", path: str = PATH, **more) -> httpx.Response:
    headers = {**({} if key is None else {"Idempotency-Key": key}), **more.pop("headers", {})}
    if "content" in more:
        headers.setdefault("Content-Type", "application/json")
    else:
        more.setdefault("json", BODY)
    return web.post(path, headers=headers, **more)


def problem(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code, answer.json()["code"]


@contextmanager
def key_held(key: str) -> Iterator[None]:
    """Another transaction holds the key, as a start under way does."""
    parameters = connection.get_connection_params()
    parameters = {k: v for k, v in parameters.items() if k in ("dbname", "user", "host", "port")}
    with psycopg.connect(**parameters) as other:
        other.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))",
            [f"start\x1f{TENANT}\x1forder_check\x1f{key}"],
        )
        yield
        other.rollback()


def test_201_then_200_then_422(web: httpx.Client) -> None:
    first = post(web)
    again = post(web)
    other = post(web, json={"input": {"order_id": "A-2"}})

    assert first.status_code == 201
    assert set(first.json()) == {"instance_id", "workflow", "version", "state", "status_url"}
    assert first.headers["Location"] == first.json()["status_url"]
    assert (again.status_code, again.json()) == (200, first.json())
    assert again.headers["Idempotency-Replayed"] == "true"
    assert problem(other) == (422, "idempotency_key_reused")
    assert web.get(first.headers["Location"]).json()["instance_id"] == first.json()["instance_id"]


def test_400_without_a_key_or_with_bad_json(web: httpx.Client) -> None:
    assert problem(post(web, key=None)) == (400, "idempotency_key_invalid")
    assert problem(post(web, content=b'{"input": ')) == (400, "malformed_body")


def test_401_403_and_404(web: httpx.Client) -> None:
    nobody = post(web, headers={"Authorization": "Bearer wf_wrong"})
    assert problem(nobody) == (401, "invalid_token")
    assert nobody.headers["WWW-Authenticate"].startswith("Bearer")

    reader = Caller(scopes=["run:read"])
    headers = {"Authorization": f"Bearer {reader.secret}"}
    assert problem(post(web, headers=headers)) == (403, "missing_scope")
    assert problem(post(web, path="/v1/workflows/nothing")) == (404, "not_found")
    rival = {"Authorization": f"Bearer {Caller('rival').secret}"}
    assert problem(post(web, headers=rival)) == (404, "not_found")


def test_409_with_retry_after_while_the_key_is_in_flight(web: httpx.Client) -> None:
    with key_held("k"):
        answer = post(web)
        assert problem(answer) == (409, "idempotency_in_flight")
        assert int(answer.headers["Retry-After"]) >= 1
        assert post(web, key="another").status_code == 201

    assert post(web).status_code == 201


def test_422_for_input_that_breaks_the_schema(web: httpx.Client) -> None:
    answer = post(web, json={"input": {}})

    assert problem(answer) == (422, "input_invalid")
    assert answer.json()["errors"][0]["pointer"].startswith("/input")


def test_many_at_once_with_one_key_start_one_run(web: httpx.Client) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: post(web), range(24)))

    counted = Counter(answer.status_code for answer in answers)
    assert counted[201] == 1
    assert set(counted) <= {200, 201, 409}
    ids = {answer.json()["instance_id"] for answer in answers if answer.status_code < 400}
    assert [str(run.id) for run in Run.objects.all()] == list(ids)
    assert StartKey.objects.count() == 1


def test_a_chunked_body_is_read_whole(web: httpx.Client) -> None:
    def chunks() -> Iterator[bytes]:
        yield b'{"input": {"order_'
        yield b'id": "chunked"}}'

    answer = post(web, content=chunks())

    assert answer.status_code == 201
    assert Run.objects.get().input == {"order_id": "chunked"}


def test_a_chunked_body_without_end_is_413(web: httpx.Client) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(40):
            yield b" " * 65_536

    assert problem(post(web, content=chunks())) == (413, "too_large")
    assert problem(post(web, content=b" " * 3_000_000)) == (413, "too_large")


def test_integers_beyond_2_53_are_exact_on_the_wire(web: httpx.Client) -> None:
    raw = b'{"input": {"order_id": "A", "amount_cents": 9223372036854775807}}'
    run = post(web, content=raw).json()["instance_id"]

    assert b"9223372036854775807" in web.get(f"/v1/workflows/{run}").content


def test_health_is_200_while_both_servers_answer(web: httpx.Client) -> None:
    answer = web.get("/healthz")

    assert (answer.status_code, answer.json()["status"]) == (200, "ok")


def test_503_while_the_servers_are_away() -> None:
    with served_without_servers() as address:
        headers = {"Authorization": "Bearer wf_any", "Idempotency-Key": "k"}
        for answer in (
            httpx.get(f"{address}/v1/workflows", headers=headers, timeout=20),
            httpx.post(f"{address}{PATH}", json=BODY, headers=headers, timeout=20),
        ):
            assert problem(answer) == (503, "unavailable")
            assert int(answer.headers["Retry-After"]) >= 1
        health = httpx.get(f"{address}/healthz", timeout=20)
        assert health.status_code == 503
        assert health.json() == {
            "status": "unavailable",
            "database": "no answer",
            "broker": "no answer",
        }
