"""Before a deploy: could the new build go on with what is open?"""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from orchestrator import engine
from orchestrator.authoring import registry
from orchestrator.authoring.registry import tool
from orchestrator.models import Blueprint, Run
from tests.desk.documents import document
from tests.desk.world import TENANT, published

pytestmark = pytest.mark.django_db
NAME = "compat.send"


@pytest.fixture(autouse=True)
def _silent(carrier: object) -> None:
    """No wake-up leaves for a broker."""


@pytest.fixture(autouse=True)
def _tool() -> Any:
    """A tool of an app that the next build may bring otherwise, or not at all."""
    install()
    yield
    registry._specs.pop(NAME, None)


def install(**changes: Any) -> None:
    registry._specs.pop(NAME, None)

    def send(to: str) -> dict[str, Any]:
        return {"to": to}

    tool(NAME, **changes)(send)


def compat(*arguments: str) -> tuple[int, str]:
    out = StringIO()
    try:
        call_command("compat", *arguments, stdout=out)
    except CommandError as error:
        return error.returncode, out.getvalue() + str(error)
    return 0, out.getvalue()


def begun() -> Run:
    steps = {"send": {"type": "tool", "tool": NAME, "input": {"to": "a"}}}
    version = published(document(input={"type": "object"}, steps=steps)).version
    run_id = engine.start_run(
        tenant=TENANT,
        blueprint=version.blueprint,
        workflow="order_check",
        version=1,
        input={},
        actor="user:x",
    )
    return Run.objects.get(pk=run_id)


def test_a_build_that_has_everything_can_go_on() -> None:
    begun()
    status, said = compat()
    assert status == 0
    assert "1 blueprints, 1 open runs, 0 cannot go on" in said
    assert "default  ok" in said


def test_a_tool_that_is_gone_stops_its_runs() -> None:
    begun()
    registry._specs.pop(NAME)
    status, said = compat("--quiet")
    assert status == 1
    assert "cannot go on" in said
    assert f'/steps/send/tool: no tool is registered as "{NAME}"' in said


def test_arguments_that_no_longer_fit_stop_its_runs() -> None:
    begun()
    registry._specs.pop(NAME)

    def send(to: int, subject: str) -> None:
        """Takes other arguments."""

    tool(NAME)(send)
    status, said = compat()
    assert status == 1
    assert "/steps/send/input" in said


def test_a_tool_that_now_demands_an_effect_key_stops_its_runs() -> None:
    begun()
    install(effect="required")
    assert compat()[0] == 1


def test_a_damaged_document_and_an_unknown_format_are_named() -> None:
    run = begun()
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE orchestrator_run SET compact = set_byte(compact, 0, 77) WHERE id = %s", [run.pk]
        )
    assert "format 77" in compat()[1]
    Blueprint.objects.update(digest="0" * 64)
    status, said = compat()
    assert status == 1
    assert "does not have the digest" in said


def test_a_run_of_newer_rules_is_not_taken_over() -> None:
    run = begun()
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL orchestrator.retention = 'on'")
        cursor.execute(
            "UPDATE orchestrator_event SET payload = payload || '{\"decisions\": 9}'"
            " WHERE run_id = %s AND seq = 1",
            [run.pk],
        )
    status, said = compat()
    assert status == 1
    assert "rules of version 9" in said


def test_nothing_open_and_nothing_published_is_fine() -> None:
    assert compat()[0] == 0
