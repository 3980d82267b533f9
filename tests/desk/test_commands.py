"""The desk's commands, against the real engine."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import orjson
import pytest
from django.core.management import CommandError, call_command

from orchestrator.models import Run
from tests.desk.documents import as_json, document
from tests.desk.world import TENANT, Caller, published
from workflows_app.models import ApiToken, Role, Tenant, WorkflowVersion

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _silent(carrier: object) -> None:
    """No wake-up leaves for a broker."""


def run(*arguments: str) -> tuple[str, str]:
    out, err = StringIO(), StringIO()
    call_command(*arguments, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def file(folder: Path, value: dict, name: str = "a.json") -> str:
    path = folder / name
    path.write_bytes(as_json(value))
    return str(path)


def test_a_document_is_published_and_published_again(tmp_path: Path) -> None:
    path = file(tmp_path, document())

    assert run("publish", path)[0].startswith("order_check version 1 published (")
    assert run("publish", path)[0].startswith("order_check version 1 unchanged (")
    assert WorkflowVersion.objects.get().workflow.tenant_id == "default"


def test_a_bad_document_is_told_line_by_line_and_the_others_are_published(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("schema: orchestrator/v1\nname: bad\nsteps:\n  a: {type: wait, colour: red}\n")
    good = file(tmp_path, document())
    out, err = StringIO(), StringIO()
    with pytest.raises(CommandError, match="Not published"):
        call_command("publish", str(bad), good, stdout=out, stderr=err)

    assert f"{bad}:4: error unknown_key /steps/a/colour:" in err.getvalue()
    assert "order_check version 1" in out.getvalue()


def test_a_run_is_started_listed_and_shown(tmp_path: Path) -> None:
    published()
    given = tmp_path / "in.json"
    given.write_bytes(as_json({"order_id": "A"}))
    out, _ = run("start", "order_check", "--input", f"@{given}", "--key", "k")
    again, _ = run("start", "order_check", "--input", '{"order_id": "A"}', "--key", "k")

    started = Run.objects.get()
    assert out.strip() == str(started.id)
    assert "had started it before" in again
    assert str(started.id) in run("runs")[0]
    shown = run("show", str(started.id), "--history")[0]
    assert "Order check: order_check version 1" in shown
    assert "run.started" in shown
    assert "by user:" in shown
    assert "workflow order_check" in shown
    assert orjson.loads(run("show", str(started.id), "--json")[0])["state"] == "pending"


def test_a_refused_start_names_each_fault() -> None:
    published()
    with pytest.raises(CommandError, match="/input"):
        run("start", "order_check", "--input", "{}")
    with pytest.raises(CommandError, match="not JSON"):
        run("start", "order_check", "--input", "{")
    with pytest.raises(CommandError, match="no workflow"):
        run("start", "nothing")


def test_a_token_is_printed_once_and_works() -> None:
    Tenant.ensure(TENANT)
    out, err = run(
        *("token", "create", "ci", "--tenant", TENANT),
        *("--scope", "run:read,run:start", "--scope", "def:read", "--role", "finance"),
    )
    secret = out.strip()

    token = ApiToken.objects.get()
    assert re.fullmatch(r"wf_[\w-]{43}", secret)
    assert secret not in err
    assert secret not in run("token", "list")[0]
    assert (token.scopes, token.roles) == (["def:read", "run:read", "run:start"], ["finance"])
    caller = Caller()
    caller.secret = secret
    assert caller.get("/v1/workflows").status == 200

    run("token", "revoke", token.prefix)
    assert caller.get("/v1/workflows").status == 401


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ([], "--scope"),
        (["--scope", "run:strat"], "run:start"),
        (["--scope", "all", "--role", "finanze"], "finance"),
    ],
)
def test_a_token_for_nothing_real_is_refused(options: list[str], complaint: str) -> None:
    with pytest.raises(CommandError, match=complaint):
        run("token", "create", "x", "--tenant", TENANT, *options)
    assert not ApiToken.objects.exists()


def test_a_role_is_added_to_the_closed_list() -> None:
    Tenant.ensure(TENANT)
    run("role", "create", "auditor", "--tenant", TENANT)

    assert "auditor" in run("role", "list")[0].split()
    assert Role.objects.filter(tenant=TENANT).count() == 6
    for name in ("auditor", "Bad Name"):
        with pytest.raises(CommandError):
            run("role", "create", name)


def test_with_several_tenants_one_must_be_named() -> None:
    Tenant.ensure("one")
    Tenant.ensure("two")
    with pytest.raises(CommandError, match=r"one\|two"):
        run("runs")
    with pytest.raises(CommandError, match="no tenant"):
        run("runs", "--tenant", "three")
    assert run("runs", "--tenant", "one") == ("", "")
