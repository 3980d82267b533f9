"""What the documents name exists: links, headings, commands, files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest
from django.core.management import get_commands

from config.env import BASE_DIR

PAGES = sorted([*BASE_DIR.glob("*.md"), *(BASE_DIR / "docs").rglob("*.md")])
OURS = ("config", "orchestrator", "workflows_app", "approvals_app")
PATHS = r"`((?:config|orchestrator|workflows_app|approvals_app|tests|docs|tools|bench)/[^`\s…]+)`"
MADE_UP = {
    "orchestrator/v1",  # the name of the document format
    "orchestrator/executors/delay.py",  # what the how-to tells the reader to write
}

by_page = pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(BASE_DIR)))


def prose(page: Path) -> str:
    return re.sub(r"(?ms)^\s*```.*?^\s*```", "", page.read_text())


def code(page: Path) -> str:
    """What stands as code on a page: blocks and spans."""
    text = page.read_text()
    blocks = re.findall(r"(?ms)^\s*```\w*\n(.*?)^\s*```", text)
    return "\n".join([*blocks, *re.findall(r"`([^`\n]+)`", prose(page))])


@cache
def headings(page: Path) -> frozenset[str]:
    """The anchors of a page, as the hosts of Markdown make them."""
    titles = re.findall(r"(?m)^#+ (.+)$", prose(page))
    words = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).strip().lower() for title in titles]
    return frozenset(re.sub(r"[^\w\- ]", "", word).replace(" ", "-") for word in words)


def alternatives(path: str) -> Iterator[str]:
    """``a/{b,c}.py`` stands for both."""
    found = re.search(r"\{([^}]*)\}", path)
    if found is None:
        yield path
        return
    for word in found[1].split(","):
        yield from alternatives(path[: found.start()] + word + path[found.end() :])


@by_page
def test_every_link_leads_to_a_page_and_a_heading(page: Path) -> None:
    dead = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = unquote(target).partition("#")
        goal = (page.parent / path).resolve() if path else page
        if not goal.exists() or (anchor and anchor not in headings(goal)):
            dead.append(target)
    assert dead == []


@by_page
def test_every_command_named_exists(page: Path) -> None:
    known = {*get_commands(), "command"}  # docs/commands.md speaks of "a manage.py command"
    goals = set(re.findall(r"(?m)^([a-z-]+):", (BASE_DIR / "Makefile").read_text()))
    named = set(re.findall(r"\bmanage\.py ([a-z_]+)", page.read_text()))
    made = set(re.findall(r"(?m)(?:^| )make ([a-z-]+)", code(page)))
    assert (named - known, made - goals) == (set(), set())


@by_page
def test_every_file_named_exists(page: Path) -> None:
    named = {one for found in re.findall(PATHS, page.read_text()) for one in alternatives(found)}
    gone = {
        path
        for path in named - MADE_UP
        if not any(BASE_DIR.glob(path.partition("::")[0].rstrip("/")))
    }
    assert gone == set()


def test_every_command_of_ours_stands_in_the_list() -> None:
    listed = set(re.findall(r"(?m)`([a-z_]+)", (BASE_DIR / "docs/commands.md").read_text()))
    ours = {name for name, app in get_commands().items() if str(app).startswith(OURS)}
    assert ours - listed == set()
