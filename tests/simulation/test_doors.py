"""Simulations over the API and the command line."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pytest
from django.core.management import CommandError, call_command

from orchestrator.models import Effect, Event, Run
from tests.desk.documents import as_json, document, gated
from tests.desk.world import TENANT, Caller, published
from tests.engine.carrier import Carrier
from workflows_app.api.simulations import SimulationAnswer
from workflows_app.gallery import files, sample_input
from workflows_app.gallery.models import DemoLedgerEntry
from workflows_app.models import Tenant, Workflow
from workflows_app.publishing import YAML, publish

pytestmark = pytest.mark.django_db

URL = "/v1/definitions/simulate"


@pytest.fixture
def desk() -> Caller:
    return Caller(scopes=("run:read",))


def simulate(desk: Caller, **body: Any) -> Any:
    answer = desk.post(URL, body)
    assert answer.status == 200, answer.body
    SimulationAnswer.model_validate(answer.body)
    return answer.body


def gallery() -> None:
    Tenant.ensure(TENANT)
    for path in files():
        publish(TENANT, path.read_bytes(), YAML, actor="user:author")


@pytest.mark.parametrize("name", [path.stem for path in files()])
def test_each_workflow_of_the_gallery_can_be_simulated(desk: Caller, name: str) -> None:
    gallery()
    found = simulate(desk, workflow=name, input=sample_input(name))

    assert (found["state"], found["version"]) == ("completed", 1)
    assert not Run.objects.exists()
    assert not Event.objects.exists()
    assert not Effect.objects.exists()
    assert not DemoLedgerEntry.objects.exists()


def test_a_document_that_is_not_published_can_be_simulated(desk: Caller) -> None:
    found = simulate(
        desk,
        document=gated(),
        input={"order_id": "A"},
        answers={"approve": {"decision": "rejected", "after": "1h", "by": "user:bob"}},
    )

    assert (found["version"], found["state"]) == (None, "failed")
    assert found["error"]["message"] == "rejected by user:bob"
    assert found["approvals"][0]["asked"]["assignees"] == ["role:finance"]
    assert found["waiting_s"] == {"p50": 3600, "p95": 3600, "complete": True, "unknown": []}
    assert not Workflow.objects.exists()


def test_a_run_is_taken_again_in_another_version(carrier: Carrier) -> None:
    desk = Caller()
    published()
    run = desk.started()
    carrier.run_all()
    signal = {"name": "go", "signal_id": "1", "payload": {"ok": True}}
    assert desk.post(f"/v1/workflows/{run.id}/signals", signal).status == 202
    carrier.run_all()
    then = {"type": "tool", "tool": "transform", "needs": ["hear"], "input": {"x": 1}}
    changed = document(steps={**document()["steps"], "then": then})

    same = simulate(desk, from_run=str(run.id))
    other = simulate(desk, from_run=str(run.id), document=changed)

    run.refresh_from_db()
    assert (same["state"], same["output"]) == (run.state, run.output)
    assert same["path"][0]["source"] == "recorded"
    assert other["output"] == {"then": {"x": 1}}


@pytest.mark.parametrize(
    ("body", "status", "code", "pointer"),
    [
        ({}, 422, "invalid_body", "/workflow"),
        ({"workflow": "order_check", "document": {}}, 422, "invalid_body", "/document"),
        ({"version": 1, "document": {}}, 422, "invalid_body", "/version"),
        ({"workflow": "order_check", "colour": 1}, 422, "invalid_body", "/colour"),
        ({"workflow": "nothing"}, 404, "not_found", None),
        ({"workflow": "order_check", "version": 9}, 422, "unknown_version", "/version"),
        ({"workflow": "order_check"}, 422, "input_invalid", "/input"),
        ({"document": {"schema": 1}}, 422, "invalid_definition", "/document/schema"),
        ({"from_run": "x"}, 422, "invalid_body", "/from_run"),
        ({"from_run": str(uuid4())}, 404, "not_found", None),
        (
            {"workflow": "order_check", "input": {"order_id": "A"}, "answers": {"hear": 1}},
            422,
            "invalid_answers",
            "/answers/hear",
        ),
        (
            {"workflow": "order_check", "input": {"order_id": "A"}, "answers": []},
            422,
            "invalid_body",
            "/answers",
        ),
    ],
)
def test_a_wish_that_cannot_be_met_is_a_problem(
    desk: Caller, body: Any, status: int, code: str, pointer: str | None
) -> None:
    published()
    answer = desk.post(URL, body)

    assert (answer.status, answer.code) == (status, code), answer.body
    if pointer is not None:
        assert any(found.startswith(pointer) for found in answer.pointers), answer.pointers


def test_another_tenants_run_and_a_lacking_scope_are_shut(desk: Caller, carrier: Carrier) -> None:
    published()
    run = Caller().started()
    stranger = Caller("other", scopes=("run:read",), actor="service:other")
    author = Caller(scopes=("def:read", "def:publish"), actor="user:author")

    assert stranger.post(URL, {"from_run": str(run.id)}).code == "not_found"
    assert stranger.post(URL, {"workflow": "order_check"}).code == "not_found"
    assert author.post(URL, {"workflow": "order_check"}).code == "missing_scope"


# -- the command -----------------------------------------------------------------------------------


def run(*arguments: str) -> tuple[str, str]:
    out, err = StringIO(), StringIO()
    call_command("simulate", *arguments, "--tenant", TENANT, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def test_the_command_tells_the_path_and_what_would_be_done() -> None:
    gallery()
    given = orjson.dumps(sample_input("content_moderation")).decode()
    answers = '{"screen": {"routes": ["harmful"]}, "appeal/appeal": {"never": true}}'
    out, _ = run("content_moderation", "--input", given, "--answers", answers)

    lines = [line.split() for line in out.splitlines()]
    assert out.startswith(
        "Content moderation: content_moderation version 1, simulated: nothing was stored or called."
    )
    assert ["remove", "completed", "assumed"] in lines
    assert ["appeal", "completed", "child", "7", "d"] in lines
    assert ["remove", "remove:P-5512", "demo.content.remove"] in lines
    assert "Time: at least 7 d; unknown for screen, remove, appeal/tell_author" in out
    assert "Cost: unknown for screen" in out


def test_the_command_takes_a_file_and_prints_json(tmp_path: Path) -> None:
    Tenant.ensure(TENANT)
    path = tmp_path / "a.json"
    path.write_bytes(as_json(gated()))
    out, _ = run(str(path), "--input", '{"order_id": "A"}', "--json")

    found = orjson.loads(out)
    SimulationAnswer.model_validate(found)
    assert (found["state"], found["version"]) == ("completed", None)


def test_the_command_ends_with_the_runs_end(carrier: Carrier) -> None:
    published()
    started = Caller().started()
    for wish in ("order_check", "--from-run"):
        arguments = [wish, str(started.id)] if wish.startswith("--") else [wish]
        given = ["--input", '{"order_id": "A"}', "--answers", '{"hear": {"never": true}}']
        with pytest.raises(SystemExit) as ended:
            run(*arguments, *given)
        assert ended.value.code == 1


def test_the_command_names_each_fault(tmp_path: Path) -> None:
    published()
    bad = tmp_path / "bad.yaml"
    bad.write_text("schema: orchestrator/v1\nname: bad\nsteps:\n  a: {type: wait, colour: red}\n")
    with pytest.raises(CommandError, match="cannot be simulated"):
        run(str(bad))
    with pytest.raises(CommandError, match=r"/answers/hear/payload/ok|/answers/hear/payload"):
        run("order_check", "--input", '{"order_id": "A"}', "--answers", '{"hear": {"payload": {}}}')
    with pytest.raises(CommandError, match="--answers is not JSON"):
        run("order_check", "--answers", "{")
    with pytest.raises(CommandError, match="workflow is missing"):
        run()
