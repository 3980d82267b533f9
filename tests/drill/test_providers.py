"""The provider doubles are as good, and as bad, as they say."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from typing import Any

import pytest

from tests.drill.providers import Fault, Provider, providers


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[Provider, Provider]]:
    with providers(seed=1) as made:
        yield made


@pytest.fixture
def keyed(both: tuple[Provider, Provider]) -> Provider:
    both[0].forget()
    return both[0]


@pytest.fixture
def keyless(both: tuple[Provider, Provider]) -> Provider:
    both[1].forget()
    return both[1]


def post(provider: Provider, operation: str, reference: str, key: str = "") -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", provider.port, timeout=0.5)
    headers = {"Idempotency-Key": key} if key else {}
    try:
        body = json.dumps({"reference": reference})
        connection.request("POST", f"/{operation}", body, headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def test_one_key_is_one_charge_where_keys_are_honoured(keyed: Provider) -> None:
    first = post(keyed, "charge", "o1", "k1")
    assert post(keyed, "charge", "o1", "k1") == (200, first[1])
    assert first[0] == 201
    assert post(keyed, "charge", "o2", "k1")[0] == 422
    assert post(keyed, "charge", "o3")[0] == 400
    assert keyed.stats() == {"applied": 1, "calls": 4, "doubled": []}


def test_each_call_counts_where_they_are_not(keyless: Provider) -> None:
    assert post(keyless, "order", "o1", "k1")[0] == 201
    assert post(keyless, "order", "o1", "k1")[0] == 201
    assert keyless.stats()["doubled"] == [["order", "o1"]]
    assert keyless.calls("order") == {"o1": 2}


def test_what_was_applied_can_be_looked_up_and_listed(keyed: Provider) -> None:
    for n in range(3):
        post(keyed, "charge", f"o{n}", f"k{n}")
    assert [entry["key"] for entry in keyed.entries("charge", "o1")] == ["k1"]
    assert keyed.ask("GET", "/find/charge", key="k2")["results"][0]["reference"] == "o2"
    assert [entry["reference"] for entry in keyed.listing()] == ["o0", "o1", "o2"]
    assert keyed.entries("charge", "never") == []


@pytest.mark.parametrize("kind", ["no_answer", "half_body", "cut_after"])
def test_it_applies_and_does_not_say_so(keyless: Provider, kind: str) -> None:
    keyless.set_faults([Fault(kind)])
    with pytest.raises((OSError, HTTPException, ValueError)):
        post(keyless, "order", "o1")
    assert len(keyless.entries("order", "o1")) == 1


def test_an_error_after_the_fact_and_one_before_it_are_different(keyless: Provider) -> None:
    keyless.set_faults([Fault("error_after", prefix="a"), Fault("error_before", prefix="b")])
    assert post(keyless, "order", "a")[0] == 500
    assert post(keyless, "order", "b")[0] == 503
    assert (len(keyless.entries("order", "a")), len(keyless.entries("order", "b"))) == (1, 0)
    assert post(keyless, "order", "b")[0] == 201  # the faults are used up


def test_nothing_is_applied_when_it_cuts_before(keyless: Provider) -> None:
    keyless.set_faults([Fault("cut_before")])
    with pytest.raises((OSError, HTTPException)):
        post(keyless, "order", "o1")
    assert keyless.stats()["applied"] == 0
    assert keyless.calls("order") == {"o1": 1}


def test_it_answers_more_than_500_calls_a_second(keyed: Provider) -> None:
    connection = HTTPConnection("127.0.0.1", keyed.port, timeout=5)
    began = time.process_time()
    for n in range(500):
        headers = {"Idempotency-Key": f"k{n}"}
        connection.request("POST", "/charge", json.dumps({"reference": f"o{n}"}), headers)
        assert connection.getresponse().read()
    connection.close()
    assert time.process_time() - began < 1.0  # ours; the provider spends about as much
    assert keyed.stats()["applied"] == 500
