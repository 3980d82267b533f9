"""Checking, publishing and reading documents over the API."""

from __future__ import annotations

import pytest

from orchestrator.models import Blueprint
from tests.desk.documents import as_json, document, parent_of
from tests.desk.world import Caller, published
from workflows_app.api.answers import (
    DefinitionAnswer,
    DefinitionPage,
    PublishedAnswer,
    ValidationAnswer,
    VersionAnswer,
)
from workflows_app.models import Workflow, WorkflowVersion

pytestmark = pytest.mark.django_db

URL = "/v1/definitions"
YAML = """\
schema: orchestrator/v1
name: from_yaml
steps:
  hear:
    type: wait
    signal: go
"""


@pytest.fixture
def author(db: None, carrier: object) -> Caller:
    return Caller(actor="user:author")


def test_a_new_document_is_201_and_the_same_again_200(author: Caller) -> None:
    first = author.post(URL, document())
    again = author.post(URL, document())

    PublishedAnswer.model_validate(first.body)
    assert (first.status, first.body["version"]) == (201, 1)
    assert first.headers["Location"] == "/v1/definitions/order_check/versions/1"
    assert (again.status, again.body) == (200, first.body)
    assert WorkflowVersion.objects.count() == 1


def test_a_changed_document_is_the_next_version_and_the_default(author: Caller) -> None:
    author.post(URL, document())
    answer = author.post(URL, document(title="Another"))

    assert (answer.status, answer.body["version"]) == (201, 2)
    default = WorkflowVersion.objects.get(is_default=True)
    assert (default.number, default.workflow.title) == (2, "Another")


def test_an_old_document_published_again_keeps_its_number_and_is_the_default(
    author: Caller,
) -> None:
    author.post(URL, document())
    author.post(URL, document(title="Another"))
    answer = author.post(URL, document())

    assert (answer.status, answer.body["version"]) == (200, 1)
    assert WorkflowVersion.objects.get(is_default=True).number == 1


@pytest.mark.parametrize("media_type", ["application/yaml", "application/yaml; charset=utf-8"])
def test_yaml_and_json_are_one_document(author: Caller, media_type: str) -> None:
    first = author.post(URL, raw=YAML.encode(), media_type=media_type)
    same = author.post(
        URL,
        {
            "steps": {"hear": {"signal": "go", "type": "wait"}},
            "name": "from_yaml",
            "schema": "orchestrator/v1",
        },
    )

    assert (first.status, same.status) == (201, 200)
    assert same.body["digest"] == first.body["digest"]


CYCLE = {
    "a": {"type": "wait", "for": "1s", "needs": ["b"]},
    "b": {"type": "wait", "for": "1s", "needs": ["a", "missing"]},
    "c": {"type": "tool", "tool": "no.such.tool"},
    "d": {"type": "human_gate", "assignees": ["role:nobody"]},
}


def test_a_bad_document_is_422_with_all_problems_and_nothing_is_stored(author: Caller) -> None:
    answer = author.post(URL, document(steps=CYCLE, colour="red"))

    assert (answer.status, answer.code) == (422, "invalid_definition")
    codes = {error["code"] for error in answer.body["errors"]}
    assert {"cycle", "unknown_key", "unknown_tool", "unknown_role"} <= codes
    assert any(pointer.startswith("/steps/b/needs") for pointer in answer.pointers)
    assert {"severity", "code", "pointer", "line", "message"} == set(answer.body["problems"][0])
    assert not Workflow.objects.exists()
    assert not Blueprint.objects.exists()


@pytest.mark.parametrize(
    ("raw", "media_type"),
    [
        (b"{", "application/json"),
        (b'{"name": "a", "name": "b"}', "application/json"),
        (b"a: &x 1\nb: *x\n", "application/yaml"),
        (b"name: a\nname: b\n", "application/yaml"),
        (b"a: !!python/object:os.system x\n", "application/yaml"),
        (b"a: [1\n", "application/yaml"),
        (b'{"a": ' + b"[" * 100 + b"]" * 100 + b"}", "application/json"),
        (b"\xff\xfe", "application/yaml"),
    ],
)
def test_a_text_that_cannot_be_read_is_400_with_problems(
    author: Caller, raw: bytes, media_type: str
) -> None:
    answer = author.post(URL, raw=raw, media_type=media_type)

    assert (answer.status, answer.code) == (400, "malformed_body")
    assert answer.body["errors"]
    assert answer.body["problems"][0]["message"]

    checked = author.post(f"{URL}/validate", raw=raw, media_type=media_type)
    assert (checked.status, checked.body["valid"]) == (200, False)
    assert checked.body["problems"] == answer.body["problems"]


@pytest.mark.parametrize("path", [URL, f"{URL}/validate"])
def test_other_media_types_are_415_and_large_bodies_413(author: Caller, path: str) -> None:
    assert author.post(path, raw=b"x", media_type="text/plain").status == 415
    large = b" " * (1024 * 1024 + 1)
    assert author.post(path, raw=large, media_type="application/yaml").status == 413


def test_validating_says_all_and_stores_nothing(author: Caller) -> None:
    good = author.post(f"{URL}/validate", document())
    bad = author.post(f"{URL}/validate", document(steps=CYCLE))

    ValidationAnswer.model_validate(bad.body)
    assert good.body["valid"] is True
    assert bad.body["valid"] is False
    assert len(bad.body["problems"]) >= 3
    assert not Workflow.objects.exists()


def test_a_line_leads_into_the_text(author: Caller) -> None:
    text = YAML.replace("signal: go", "signall: go")
    problems = author.post(
        f"{URL}/validate", raw=text.encode(), media_type="application/yaml"
    ).body["problems"]

    assert any(p["pointer"] == "/steps/hear/signall" and p["line"] == 6 for p in problems)


# -- children --------------------------------------------------------------------------------------


def test_a_child_is_pinned_to_what_it_means_today(author: Caller) -> None:
    child = published().version.blueprint
    author.post(URL, parent_of("order_check"))
    shown = author.get(f"{URL}/parent/versions/1").body
    assert shown["pins"] == {"order_check": child.digest}

    same = author.post(URL, parent_of("order_check"))
    assert same.status == 200

    published(document(title="moved on"))
    moved = author.post(URL, parent_of("order_check"))
    assert (moved.status, moved.body["version"]) == (201, 2)


def test_a_child_version_may_be_named(author: Caller) -> None:
    first = published().version.blueprint
    published(document(title="moved on"))
    author.post(URL, parent_of("order_check@1"))

    assert author.get(f"{URL}/parent").body["document"]["steps"]["call"]["workflow"].endswith("@1")
    assert author.get(f"{URL}/parent/versions/1").body["pins"] == {"order_check@1": first.digest}


@pytest.mark.parametrize("child", ["nothing", "order_check@9"])
def test_a_child_that_does_not_exist_is_a_problem(author: Caller, child: str) -> None:
    published()
    answer = author.post(URL, parent_of(child))

    assert (answer.status, answer.pointers) == (422, ["/steps/call/workflow"])


def test_a_workflow_may_call_itself_also_on_first_publish(author: Caller) -> None:
    assert author.post(URL, parent_of("parent")).status == 201
    assert author.get(f"{URL}/parent/versions/1").body["pins"] == {"parent": "self"}


def test_two_workflows_may_not_call_each_other(author: Caller) -> None:
    published(document("left"))
    published(parent_of("left", "middle"))
    published(parent_of("middle", "right"))
    answer = author.post(URL, parent_of("right", "left"))

    assert (answer.status, answer.pointers) == (422, ["/steps/call/workflow"])
    assert answer.body["errors"][0]["code"] == "mutual_recursion"
    assert "left → right → middle → left" in answer.body["errors"][0]["detail"]


# -- reading ---------------------------------------------------------------------------------------


def test_workflows_are_listed_by_name_in_pages(author: Caller) -> None:
    for name in ("banana", "apple", "cherry"):
        author.post(URL, document(name))
    first = author.get(URL, limit=2).body
    rest = author.get(URL, limit=2, cursor=first["next"]).body

    DefinitionPage.model_validate(first)
    assert [each["name"] for each in first["results"]] == ["apple", "banana"]
    assert [each["name"] for each in rest["results"]] == ["cherry"]
    assert rest["next"] is None


def test_a_workflow_and_its_versions_are_shown(author: Caller) -> None:
    author.post(URL, document())
    author.post(URL, document(title="Another"))
    body = author.get(f"{URL}/order_check").body

    DefinitionAnswer.model_validate(body)
    assert body["document"]["title"] == "Another"
    assert [(v["version"], v["default"]) for v in body["versions"]] == [(2, True), (1, False)]

    old = author.get(f"{URL}/order_check/versions/1").body
    VersionAnswer.model_validate(old)
    assert old["document"] == document()
    assert old["source"].encode() == as_json(document())
    assert old["published_by"] == "user:author"


@pytest.mark.parametrize(
    "path", ["/nothing", "/a%00b", "/order_check/versions/7", "/nothing/versions/1"]
)
def test_what_does_not_exist_or_is_anothers_is_404(author: Caller, path: str) -> None:
    published()

    assert author.get(URL + path).code == "not_found"
    assert Caller("rival").get(f"{URL}/order_check").status == 404


def test_the_documents_schema_is_served_to_everybody(client) -> None:
    answer = client.get("/v1/schema/workflow.json")

    assert answer.status_code == 200
    assert answer.json()["$schema"] == "https://json-schema.org/draft/2020-12/schema"
