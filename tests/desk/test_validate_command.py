from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from workflows_app.models import Tenant

GOOD = """\
schema: orchestrator/v1
name: good
steps:
  ask: {type: human_gate, assignees: ["role:finance"]}
"""
BAD = """\
schema: orchestrator/v1
name: bad
steps:
  a: {type: wait, for: 1s, needs: [b]}
  b: {type: wait, for: 1s, needs: [a], neds: 1}
  c: {type: tool, tool: nope}
  d: {type: human_gate, assignees: ["role:king"]}
"""


@pytest.fixture
def tenant() -> str:
    return Tenant.ensure("default").slug


def written(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.django_db
def test_a_valid_file_is_said_to_be_valid(tenant: str, tmp_path: Path) -> None:
    out = StringIO()
    name = written(tmp_path, "good.yaml", GOOD)
    call_command("validate", name, stdout=out)
    assert out.getvalue() == f"{name}: valid\n"


@pytest.mark.django_db
def test_roles_are_those_of_the_only_tenant_there_is(tmp_path: Path) -> None:
    Tenant.ensure("acme")
    out = StringIO()
    call_command("validate", written(tmp_path, "good.yaml", GOOD), stdout=out)
    assert out.getvalue().endswith(": valid\n")


@pytest.mark.django_db
def test_every_problem_of_every_file_is_printed_in_the_form_that_editors_jump_from(
    tenant: str, tmp_path: Path
) -> None:
    out = StringIO()
    good, bad = written(tmp_path, "good.yaml", GOOD), written(tmp_path, "bad.yaml", BAD)
    with pytest.raises(CommandError, match="1 of 2"):
        call_command("validate", bad, good, stdout=out)
    *problems, last = out.getvalue().splitlines()
    assert last == f"{good}: valid"
    assert [line.split(": ")[:2] for line in problems] == [
        [f"{bad}:4", "error cycle /steps/a/needs"],
        [f"{bad}:5", "error unknown_key /steps/b/neds"],
        [f"{bad}:6", "error unknown_tool /steps/c/tool"],
        [f"{bad}:7", "error unknown_role /steps/d/assignees/0"],
    ]


@pytest.mark.django_db
def test_machines_get_json(tenant: str, tmp_path: Path) -> None:
    out = StringIO()
    with pytest.raises(CommandError):
        call_command("validate", "--json", written(tmp_path, "x.json", "{"), stdout=out)
    answer = json.loads(out.getvalue())
    assert answer["valid"] is False
    assert answer["problems"][0]["code"] == "syntax"


def test_a_file_that_is_not_there_is_one_clear_sentence(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot be read: No such file"):
        call_command("validate", str(tmp_path / "none.yaml"))
