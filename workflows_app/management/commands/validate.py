"""``manage.py validate``: everything that is wrong with workflows, before publishing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from orchestrator.authoring import Workflow
from orchestrator.core.problems import Problem
from workflows_app import publishing
from workflows_app.discovery import placed
from workflows_app.management.terminal import (
    add_apps,
    add_tenant,
    problem_lines,
    read_document,
    tenant_of,
    written_workflows,
)


class Command(BaseCommand):
    """Print code, pointer, line and message of every problem; exit 1 when there are errors."""

    help = (
        "Check workflow documents (YAML or JSON), without files the workflows.py of installed"
        " apps, as publishing would; stores nothing."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Files, and whose roles and workflows they may name."""
        parser.add_argument("files", nargs="*", metavar="FILE")
        add_apps(parser)
        add_tenant(parser)
        parser.add_argument("--json", action="store_true", help="one JSON object a file")

    def handle(self, *_: Any, files: list[str], **options: Any) -> None:
        """Check each file; all of them are read even when the first one is wrong."""
        written = written_workflows({**options, "files": files})
        sources = _of_files(files) if written is None else _of_flows(written)
        tenant = tenant_of(options)
        n_bad = 0
        for given in sources:
            examined = publishing.examine(tenant, given.source, given.media_type)
            n_bad += not examined.valid
            if options["json"]:
                self._print_json(given.name, examined)
            else:
                self._print(given, examined)
        if n_bad:
            raise CommandError(f"{n_bad} of {len(sources)} documents cannot be published")

    def _print(self, given: _Given, examined: publishing.Examined) -> None:
        for line in given.lines(examined.problems):
            self.stdout.write(line)
        if examined.valid:
            self.stdout.write(f"{given.name}: valid")

    def _print_json(self, name: str, examined: publishing.Examined) -> None:
        problems = [problem.as_json() for problem in examined.problems]
        shape = {"file": name, "valid": examined.valid, "problems": problems}
        self.stdout.write(json.dumps(shape, ensure_ascii=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """One document to check; ``flow`` is the Python that it comes from."""

    name: str
    source: bytes
    media_type: str
    flow: Workflow | None = None

    def lines(self, problems: Iterable[Problem]) -> Sequence[str]:
        """Its problems, in the form that editors jump from."""
        if self.flow is None:
            return problem_lines(self.name, problems)
        return placed(self.flow, problems)


def _of_files(names: list[str]) -> list[_Given]:
    found = []
    for name in names:
        source, media_type = read_document(name)
        found.append(_Given(name=name, source=source, media_type=media_type))
    return found


def _of_flows(flows: list[Workflow]) -> list[_Given]:
    return [
        _Given(
            name=flow.name,
            source=flow.to_json().encode(),
            media_type=publishing.JSON,
            flow=flow,
        )
        for flow in flows
    ]
