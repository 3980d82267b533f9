"""Rules of the house that no linter knows."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from config.env import BASE_DIR, Environment

APPS = ("config", "orchestrator", "workflows_app", "approvals_app")
VAGUE = {"utils", "helpers", "common", "misc", "services", "managers"}


def modules() -> list[Path]:
    return [path for app in APPS for path in (BASE_DIR / app).rglob("*.py")]


def test_every_module_is_named_after_what_it_is_about() -> None:
    vague = [path for path in modules() if VAGUE & {path.stem, *path.parent.parts[-2:]}]
    assert vague == []


def test_the_pins_name_no_host_and_no_folder() -> None:
    for name in ("requirements.txt", "requirements-dev.txt"):
        text = (BASE_DIR / name).read_text()
        assert (
            re.findall(r"(?m)^(?!#).*(://|--find-links|--index|--extra-index| @ ).*$", text) == []
        )
        unhashed = re.findall(r"(?m)^[a-z][^\n]*==[^\n\\]*$", text)
        assert unhashed == [], f"{name}: pinned without a hash"


def test_every_requirement_says_what_needs_it() -> None:
    silent = [
        line
        for line in (BASE_DIR / "requirements.in").read_text().splitlines()
        if line and not line.startswith("#") and "#" not in line
    ]
    assert silent == []


def test_every_variable_of_the_environment_says_what_it_is_for() -> None:
    silent = {name for name, field in Environment.model_fields.items() if not field.description}
    assert silent == set()


@pytest.mark.parametrize(
    ("path", "line", "contract"),
    [
        ("orchestrator/core/graph.py", "import django", "The core and the policy"),
        ("orchestrator/core/graph.py", "import orchestrator.engine", "The engine's floors"),
        ("orchestrator/clock.py", "import workflows_app", "One-way arrow"),
        ("approvals_app/policy.py", "import workflows_app", "One-way arrow"),
        ("approvals_app/queries.py", "import orchestrator.engine.start", "The faces use"),
        ("orchestrator/engine/start.py", "import celery", "Only tasks and config know Celery"),
        ("orchestrator/models/run.py", "import rest_framework", "The engine needs no REST"),
    ],
)
def test_a_wrong_import_breaks_the_build(
    tmp_path: Path, path: str, line: str, contract: str
) -> None:
    for app in APPS:
        shutil.copytree(BASE_DIR / app, tmp_path / app, ignore=shutil.ignore_patterns("*.pyc"))
    shutil.copy(BASE_DIR / "pyproject.toml", tmp_path)
    with (tmp_path / path).open("a") as file:
        file.write(f"\n{line}\n")

    done = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache", "--no-logo"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert re.search(rf"{contract}.* BROKEN", done.stdout), done.stdout
