"""Every guard is taken away once, in a throw-away copy of the tree: its tests must fail then.

A test that passes without the guard that it names proves nothing about it. First all named tests
run with every guard in place and must pass; their database is the template of the others.

``python -m tests.drill.guards`` prints the list as docs/reliability.md shows it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree

import psycopg
from psycopg import sql

from config.embedded import servers
from config.env import BASE_DIR
from tests.drill.guarding import GUARDS, Cut, Guard
from tests.drill.line import Line, Size

TREES = ("approvals_app", "config", "docs", "orchestrator", "tests", "workflows_app")
FILES = ("manage.py", "pyproject.toml")
PROMISE = "P1-P22"
SIDE_BY_SIDE = 2
LIMIT_S = 240.0


def guards(size: Size, seed: int) -> Iterator[Line]:
    """One line for the list as it is, one for what its tests do without the guards."""
    chosen = [guard for guard in GUARDS if size is not Size.QUICK or guard.drop]
    began = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="guards-")))
        running = stack.enter_context(servers(folder / "servers", durable=False))
        bench = Bench(folder, running.database_url, running.broker_url, seed)
        with_all = bench.first(chosen)
        yield Line(
            PROMISE,
            "with every guard in place its tests pass",
            tried=len(with_all.seen),
            figures={"tests": len(with_all.seen)},
            broken=[f"{name}: {how}" for name, how in with_all.seen.items() if how != "passed"],
        )
        pool = stack.enter_context(ThreadPoolExecutor(SIDE_BY_SIDE))
        broken = [words for found in pool.map(bench.without, chosen) for words in found]
    yield Line(
        PROMISE,
        "each guard, taken away, makes the tests fail that are named for it",
        tried=len(chosen),
        figures={"tests": sum(len(g.tests) for g in chosen), "s": time.monotonic() - began},
        broken=broken,
    )


@dataclass(slots=True)
class Ran:
    """A run of pytest: each test by its name without and with parameters, and how it ended:
    ``passed``, ``failed``, or ``never ran``; ``said`` is the end of its output."""

    seen: dict[str, str] = field(default_factory=dict)
    said: str = ""


class Bench:
    """Copies of the tree and of the test database, on servers of their own."""

    def __init__(self, folder: Path, database_url: str, broker_url: str, seed: int) -> None:
        self.folder, self.seed = folder, seed
        self.database_url, self.broker_url = database_url, broker_url

    def first(self, chosen: Sequence[Guard]) -> Ran:
        """All named tests over the tree as it is; leaves the template of the databases."""
        tests = sorted({test for guard in chosen for test in guard.tests})
        return self._pytest(BASE_DIR, "guards", tests, "--create-db")

    def without(self, guard: Guard) -> list[str]:
        """What is wrong with this guard's tests: a sentence for each that does not fail."""
        name = "".join(c if c.isalnum() else "_" for c in guard.name.lower())
        tree = self.folder / name
        copy_tree(BASE_DIR, tree)
        database = self._database(name)
        for cut in guard.cuts:
            apply_cut(tree, cut)
        scripts = sorted({cut.path for cut in guard.cuts if cut.path.endswith(".sql")})
        for statement in [*((tree / path).read_text() for path in scripts), guard.drop]:
            if statement:
                self._execute(database, statement)
        ran = self._pytest(tree, name, guard.tests)
        return [
            f"without {guard.name!r}: {test} {ran.seen.get(test, 'never ran')}\n{ran.said}"
            for test in guard.tests
            if ran.seen.get(test) != "failed"
        ]

    def _pytest(self, tree: Path, name: str, tests: Sequence[str], *more: str) -> Ran:
        report = self.folder / f"{name}.xml"
        command = [sys.executable, "-m", "pytest", "-q", "--reuse-db", f"--junitxml={report}"]
        command += ["-o", "junit_family=xunit1", "-o", "timeout=60", "-p", "no:cacheprovider"]
        command += [f"--randomly-seed={self.seed}", *more, *tests]
        url = urlsplit(self.database_url)._replace(path=f"/{name}").geturl()
        environment = os.environ | {
            "DATABASE_URL": url,
            "BROKER_URL": self.broker_url,
            "PYTHONPATH": str(tree),
        }
        done = subprocess.run(
            command,
            cwd=tree,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
        said = done.stdout[-1500:] + done.stderr[-500:]
        return Ran(_outcomes(report) if report.exists() else {}, said)

    def _database(self, name: str) -> str:
        """The guard's own test database, as pytest-django calls it."""
        database = f"test_{name}"
        words = sql.SQL("CREATE DATABASE {} TEMPLATE test_guards")
        with psycopg.connect(self._url("postgres"), autocommit=True) as connection:
            connection.execute(words.format(sql.Identifier(database)))
        return database

    def _execute(self, database: str, statement: str) -> None:
        with psycopg.connect(self._url(database), autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[arg-type]

    def _url(self, database: str) -> str:
        return urlsplit(self.database_url)._replace(path=f"/{database}").geturl()


def copy_tree(source: Path, target: Path) -> None:
    """The tree that tests run over, by hard links: what is changed is written anew."""
    for name in TREES:
        for path in (source / name).rglob("*"):
            if path.is_file() and "node_modules" not in path.parts:
                _link(path, target / path.relative_to(source))
    for name in FILES:
        _link(source / name, target / name)


def _link(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(path, target)
    except OSError:  # another file system
        target.write_bytes(path.read_bytes())


def apply_cut(tree: Path, cut: Cut) -> None:
    """Take the text away; ValueError unless it stands there exactly once."""
    path = tree / cut.path
    text = path.read_text()
    if (count := text.count(cut.old)) != 1:
        raise ValueError(
            f"{cut.path} has {count} times, not once, the text of a guard: {cut.old!r}; "
            "say in tests/drill/guarding how it is taken away now"
        )
    path.unlink()
    path.write_text(text.replace(cut.old, cut.new))


def _outcomes(report: Path) -> dict[str, str]:
    """How each test ended; one with parameters counts as failed when any of them failed."""
    seen: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        path = case.get("file") or case.get("classname", "").replace(".", "/") + ".py"
        full = f"{path}::{case.get('name')}"
        for name in {full, full.partition("[")[0]}:
            if seen.get(name) != "failed":
                seen[name] = _outcome(case)
    return seen


def _outcome(case: ElementTree.Element) -> str:
    """``failed``: in its body, or at its end, where every invariant is checked."""
    errors = case.findall("error")
    if any("on setup" in (error.get("message") or "") for error in errors):
        return "could not be set up"
    if errors or case.find("failure") is not None:
        return "failed"
    return "was skipped" if case.find("skipped") is not None else "passed"


def table() -> str:
    """The list as docs/reliability.md shows it."""
    rows = ["| Guard | What it does | Without it fails |", "| --- | --- | --- |"]
    for guard in GUARDS:
        tests = "<br>".join(f"`{test.removeprefix('tests/')}`" for test in guard.tests)
        rows.append(f"| {guard.name} | {guard.what} | {tests} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(table())
