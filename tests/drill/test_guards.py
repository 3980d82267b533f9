"""The list of guards is true of the tree as it is; ``python -m tests.drill --only guards`` proves
that each test fails without its guard."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from django.db import connection, transaction

from config.env import BASE_DIR
from tests.drill.guarding import GUARDS, Guard
from tests.drill.guards import apply_cut, table

BY_NAME = {guard.name: guard for guard in GUARDS}
# What the acceptance names, in its words.
PROMISED = (
    "fence",
    "intent",
    "receipt check",
    "unique start key",
    "READY sweep",
    "lease sweep",
    "terminal is final",
)


def test_every_guard_has_a_name_of_its_own_and_the_promised_ones_are_there() -> None:
    assert len(BY_NAME) == len(GUARDS)
    assert set(PROMISED) <= set(BY_NAME)


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name.replace(" ", "_"))
def test_the_text_of_every_guard_stands_where_it_is_taken_away(
    guard: Guard, tmp_path: Path
) -> None:
    assert guard.cuts or guard.drop
    for cut in guard.cuts:
        target = tmp_path / cut.path
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text((BASE_DIR / cut.path).read_text())
        apply_cut(tmp_path, cut)
        if target.suffix == ".py":
            ast.parse(target.read_text())


def test_a_text_that_stands_nowhere_is_an_error_that_says_where(tmp_path: Path) -> None:
    cut = GUARDS[0].cuts[0]
    (tmp_path / cut.path).parent.mkdir(parents=True)
    (tmp_path / cut.path).write_text("")
    with pytest.raises(ValueError, match=f"{cut.path} has 0 times, not once"):
        apply_cut(tmp_path, cut)


@pytest.mark.django_db
def test_the_database_has_every_guard_that_it_is_told_to_drop() -> None:
    for guard in GUARDS:
        if guard.drop:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(guard.drop)


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name.replace(" ", "_"))
def test_the_named_tests_exist(guard: Guard) -> None:
    assert guard.tests
    for test in guard.tests:
        path, _, name = test.partition("::")
        functions = {
            node.name
            for node in ast.walk(ast.parse((BASE_DIR / path).read_text()))
            if isinstance(node, ast.FunctionDef)
        }
        assert name.partition("[")[0] in functions, test


def test_the_page_shows_the_list() -> None:
    page = (BASE_DIR / "docs" / "reliability.md").read_text()
    assert table() in page, "python -m tests.drill.guards prints the list for docs/reliability.md"


PROMISE = re.compile(r'"((?:P\d+|\d\.\d)(?:-P\d+)?(?: (?:P\d+|\d\.\d))*)"')


def test_every_promise_that_a_drill_names_stands_on_the_page() -> None:
    page = (BASE_DIR / "docs" / "reliability.md").read_text()
    table = page[page.index("## Promises") : page.index("## Guards")]
    first = " ".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| "))
    kept = set(re.findall(r"P\d+-P\d+|P\d+|\d\.\d", first))

    named: set[str] = set()
    for file in (BASE_DIR / "tests" / "drill").glob("**/*.py"):
        if not file.name.startswith("test_"):
            named |= {one for found in PROMISE.findall(file.read_text()) for one in found.split()}

    assert len(named) > 10
    assert named <= kept
