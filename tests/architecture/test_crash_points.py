"""Every transaction of the engine and the faces has a name, so that a drill can die around it."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from config.env import BASE_DIR
from orchestrator import crash

APPS = ("orchestrator", "workflows_app", "approvals_app")
READS_ONLY = {  # nothing is written in them, so nothing can be half written
    "orchestrator/models/statements.py": "one snapshot for several questions",
    "orchestrator/ops/invariants.py": "a question with a time limit",
    "orchestrator/ops/replay_sample.py": "a question with a time limit",
}


def test_every_transaction_is_a_unit() -> None:
    nameless = [
        f"{path}:{line}: use orchestrator.crash.Unit (faces: engine.Unit) with a name"
        for app in APPS
        for file in sorted((BASE_DIR / app).rglob("*.py"))
        if "migrations" not in file.parts
        and (path := str(file.relative_to(BASE_DIR))) not in READS_ONLY
        and path != "orchestrator/crash.py"
        for line in transactions(file.read_text())
    ]
    assert nameless == []


def transactions(source: str) -> list[int]:
    """The lines that open a transaction by Django's own means."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute | ast.Name | ast.alias)
        and _name(node) in ("atomic", "Atomic", "set_autocommit")
    ]


def _name(node: ast.Attribute | ast.Name | ast.alias) -> str:
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name) | ast.alias(name=name):
            return name
    return ""


@pytest.mark.parametrize(
    "source",
    [
        "with transaction.atomic():\n    pass",
        "@transaction.atomic\ndef f(): pass",
        "from django.db.transaction import atomic",
        "connection.set_autocommit(False)",
    ],
)
def test_a_nameless_transaction_is_found(source: str) -> None:
    assert transactions(source)


def test_names_of_places_are_not_used_by_two_modules() -> None:
    homes: dict[str, set[Path]] = {}
    for app in APPS:
        for file in (BASE_DIR / app).rglob("*.py"):
            for name in names(file.read_text()):
                homes.setdefault(name, set()).add(file)
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}
    assert len(homes) > 20, "the places are not found any more"


def names(source: str) -> set[str]:
    """What the file's units and crash points are called."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return {
        call.args[0].value
        for call in calls
        if isinstance(call.func, ast.Name | ast.Attribute)
        and _name(call.func) in ("Unit", "crash_point")
        and call.args
        and isinstance(call.args[0], ast.Constant)
    }


def test_nobody_listens_in_production() -> None:
    assert crash._Drill.hook is None


@pytest.mark.parametrize(("wanted", "status"), [("here:3", -signal.SIGKILL), ("here:4", 0)])
def test_the_environment_may_name_the_place_where_a_process_dies(wanted: str, status: int) -> None:
    script = "from orchestrator.crash import crash_point\nfor _ in range(3): crash_point('here')"
    environment = os.environ | {"ORCHESTRATOR_CRASH_AT": wanted}
    done = subprocess.run([sys.executable, "-c", script], cwd=BASE_DIR, env=environment)
    assert done.returncode == status
