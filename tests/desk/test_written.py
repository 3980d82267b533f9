"""Workflows written in Python, found in apps, checked, published and converted by commands."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path

import orjson
import pytest
from django.apps import AppConfig
from django.core.management import CommandError, call_command

from config.env import BASE_DIR
from orchestrator.authoring import Workflow, WorkflowError
from orchestrator.core.source import load_yaml
from tests.desk.documents import as_json, document
from tests.desk.world import TENANT
from workflows_app.discovery import Found, placed, workflows_of
from workflows_app.gallery import files
from workflows_app.models import Tenant, WorkflowVersion
from workflows_app.publishing import JSON, YAML, examine, publish

FLOW = """\
from orchestrator.authoring import Workflow

parent = Workflow("parent")
parent.sub_workflow("call", "child")
parent.sub_workflow("again", "parent")
child = Workflow("child")
child.wait("pause", for_="1s")
same = child
hidden = [Workflow("hidden")]
"""


def app(folder: Path, name: str, text: str | None) -> AppConfig:
    """An app as the registry would hold it; ``text`` is its workflows.py."""
    package = folder / name
    package.mkdir()
    (package / "__init__.py").write_text("")
    if text is not None:
        (package / "workflows.py").write_text(text)
    importlib.invalidate_caches()
    return AppConfig(name, importlib.import_module(name))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def names(found: list[Found]) -> list[str]:
    return [each.flow.name for each in found]


def run(*arguments: str) -> tuple[str, str]:
    out, err = StringIO(), StringIO()
    call_command(*arguments, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def test_what_stands_at_the_top_of_a_module_is_found_children_first(folder: Path) -> None:
    configs = [app(folder, "written_a", FLOW), app(folder, "written_none", None)]

    assert names(workflows_of(configs)) == ["child", "parent"]


def test_a_workflow_that_another_app_imports_is_the_same_one(folder: Path) -> None:
    configs = [
        app(folder, "written_b", FLOW),
        app(folder, "written_c", "from written_b.workflows import child"),
    ]

    assert names(workflows_of(configs)) == ["child", "parent"]


def test_two_workflows_under_one_name_are_refused_with_both_places(folder: Path) -> None:
    configs = [app(folder, "written_d", FLOW), app(folder, "written_e", FLOW)]
    with pytest.raises(WorkflowError) as refused:
        workflows_of(configs)

    assert re.fullmatch(
        r".*written_e/workflows\.py:3: two workflows are called 'parent', the other one in"
        r" .*written_d/workflows\.py:3: rename one of them",
        str(refused.value),
    )


def test_a_wrong_line_is_named(folder: Path) -> None:
    wrong = app(folder, "written_f", FLOW + 'child.wait("late", untill="x")\n')
    with pytest.raises(
        WorkflowError, match=r'written_f/workflows\.py:10: .* knows no "untill": did you mean'
    ):
        workflows_of([wrong])


@pytest.mark.django_db
def test_problems_of_publishing_stand_at_the_line_of_their_step() -> None:
    flow = Workflow("flow")
    flow.tool("a", "transfrom")
    flow.human_gate("b", assignees=["role:king"])
    Tenant.ensure(TENANT)
    examined = examine(TENANT, flow.to_json().encode(), JSON)

    start = flow.place.line
    lines = placed(flow, examined.problems)
    assert [line.partition(": error")[0] for line in lines] == [
        f"{__file__}:{start + 1}",
        f"{__file__}:{start + 2}",
    ]
    assert 'did you mean "transform"?' in lines[0]


@pytest.mark.django_db
def test_publish_without_files_publishes_what_apps_hold() -> None:
    out, _ = run("publish", "--app", "gallery")

    told = [line.split(" (")[0] for line in out.splitlines()]
    assert sorted(told) == [f"{path.stem} version 1 published" for path in files()]
    for path in files():  # and the YAML of each is the same version
        again = publish("default", path.read_bytes(), YAML, actor="user:author")
        assert not again.created, path.stem
    assert WorkflowVersion.objects.count() == len(files())
    assert "unchanged" in run("publish", "--app", "gallery")[0]


@pytest.mark.django_db
def test_validate_without_files_checks_what_apps_hold() -> None:
    run("publish", "--app", "gallery")
    out, _ = run("validate", "--app", "gallery", "--json")

    assert all(orjson.loads(line)["valid"] for line in out.splitlines())
    assert "order_payment: valid" in run("validate", "--app", "gallery")[0]


@pytest.mark.django_db
@pytest.mark.parametrize("command", ["publish", "validate"])
def test_a_wrong_choice_of_workflows_is_refused(command: str) -> None:
    with pytest.raises(CommandError, match="no app is called 'galery': did you mean \"gallery\""):
        run(command, "--app", "galery")
    with pytest.raises(CommandError, match="not both"):
        run(command, "some.yaml", "--app", "gallery")
    with pytest.raises(CommandError, match="No workflow was found"):
        run(command, "--app", "approvals_app")


def test_a_document_is_converted_to_each_face_and_stays_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(as_json(document()))
    wanted = Workflow.from_document(document()).canonical

    text = run("convert", str(path), "--to", "yaml")[0]
    assert Workflow.from_document(load_yaml(text.encode()).value).canonical == wanted
    code: dict[str, Workflow] = {}
    exec(run("convert", str(path), "--to", "python")[0], code)
    assert code["flow"].canonical == wanted
    assert orjson.loads(run("convert", "order_payment", "--to", "json")[0])["name"]


def test_what_cannot_be_converted_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    with pytest.raises(CommandError, match=r'no workflow .* did you mean "order_payment"\?'):
        run("convert", "order_paymnt", "--to", "yaml")
    for text, words in (("a: [", "cannot be read"), ("schema: x", "no workflow document")):
        path.write_text(text)
        with pytest.raises(CommandError, match=words):
            run("convert", str(path), "--to", "json")


def test_an_extra_app_with_workflows_is_found_by_a_command(tmp_path: Path) -> None:
    package = tmp_path / "our_flows"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "workflows.py").write_text(FLOW)
    done = subprocess.run(
        [sys.executable, "manage.py", "convert", "child", "--to", "yaml"],
        cwd=BASE_DIR,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "EXTRA_APPS": "our_flows"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 0, done.stderr
    assert load_yaml(done.stdout.encode()).value["steps"] == {
        "pause": {"type": "wait", "for": "1s"}
    }
