"""The API's description is true: valid OpenAPI 3.1, complete, and kept by the answers."""

from __future__ import annotations

import re

import pytest
from django.contrib.staticfiles import finders
from django.test import Client
from django.urls import get_resolver
from drf_spectacular.validation import validate_schema

from tests.desk.world import Caller

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def described() -> dict:
    answer = Client().get("/v1/openapi.json", headers={"Accept": "application/json"})
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("application/")
    return answer.json()


def operations(described: dict) -> list[tuple[str, str, dict]]:
    return [
        (path, method, operation)
        for path, item in described["paths"].items()
        for method, operation in item.items()
        if method in ("get", "post", "put", "patch", "delete")
    ]


def test_it_is_valid_openapi_3_1(described: dict) -> None:
    assert described["openapi"].startswith("3.1")
    validate_schema(described)


def test_it_lists_every_address_that_there_is(described: dict) -> None:
    there = set()
    for include in get_resolver().url_patterns:
        if str(include.pattern) == "v1/":
            there |= {f"/v1/{route.pattern}" for route in include.url_patterns}

    assert set(described["paths"]) == {re.sub(r"<\w+:(\w+)>", r"{\1}", path) for path in there}


def test_every_operation_names_its_problems_scope_and_words(described: dict) -> None:
    for path, method, operation in operations(described):
        if path == "/v1/schema/workflow.json":
            continue
        where = f"{method} {path}"
        assert operation["summary"], where
        assert "Scope: `" in operation["description"], where
        answers = operation["responses"]
        wanted = {"401", "403", "503"} | (
            {"400", "413", "415", "422"} if method == "post" else set()
        )
        assert wanted <= set(answers), where
        for status, answer in answers.items():
            if int(status) >= 400:
                assert set(answer["content"]) == {"application/problem+json"}, where


def test_the_start_is_described_to_the_letter(described: dict) -> None:
    operation = described["paths"]["/v1/workflows/{id}"]["post"]
    headers = [p for p in operation["parameters"] if p["in"] == "header"]

    assert [(p["name"], p["required"]) for p in headers] == [("Idempotency-Key", True)]
    assert {"200", "201", "400", "401", "403", "404", "409", "413", "415", "422", "503"} == set(
        operation["responses"]
    )


def test_the_page_to_try_it_needs_nothing_from_elsewhere() -> None:
    page = Client().get("/v1/docs/")
    text = page.content.decode()

    assert page.status_code == 200
    assert not re.search(r"(src|href)=[\"']?https?://", text)
    local = re.findall(r"static/(drf_spectacular_sidecar/[^\"'?]+)", text)
    assert local
    assert all(finders.find(each) for each in local)


def test_the_description_itself_is_open(shop: Caller) -> None:
    assert Client().get("/v1/openapi.json").status_code == 200
