"""``manage.py validate FILE…``: everything that is wrong with documents, before publishing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from orchestrator.core.problems import Problem
from workflows_app import publishing
from workflows_app.management.terminal import add_tenant, tenant_of


class Command(BaseCommand):
    """Print code, pointer, line and message of every problem; exit 1 when there are errors."""

    help = "Check workflow documents (YAML or JSON) as publishing would; stores nothing."

    def add_arguments(self, parser: CommandParser) -> None:
        """Files, and whose roles and workflows they may name."""
        parser.add_argument("files", nargs="+", metavar="FILE")
        add_tenant(parser)
        parser.add_argument("--json", action="store_true", help="one JSON object a file")

    def handle(self, *_: Any, files: list[str], **options: Any) -> None:
        """Check each file; all of them are read even when the first one is wrong."""
        sources = [(name, _read(name)) for name in files]
        tenant = tenant_of(options)
        n_bad = 0
        for name, source in sources:
            examined = publishing.examine(tenant, source, _media_type(name))
            n_bad += not examined.valid
            if options["json"]:
                self._print_json(name, examined)
            else:
                self._print(name, examined)
        if n_bad:
            raise CommandError(f"{n_bad} of {len(files)} documents cannot be published")

    def _print(self, name: str, examined: publishing.Examined) -> None:
        for problem in examined.problems:
            self.stdout.write(_line(name, problem))
        if examined.valid:
            self.stdout.write(f"{name}: valid")

    def _print_json(self, name: str, examined: publishing.Examined) -> None:
        problems = [problem.as_json() for problem in examined.problems]
        shape = {"file": name, "valid": examined.valid, "problems": problems}
        self.stdout.write(json.dumps(shape, ensure_ascii=False))


def _read(name: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise CommandError(f"{name} cannot be read: {error.strerror}") from error


def _media_type(name: str) -> str:
    return publishing.JSON if name.endswith(".json") else publishing.YAML


def _line(name: str, problem: Problem) -> str:
    """``file:line: error code /pointer: message``, the form that editors jump from."""
    place = name if problem.line is None else f"{name}:{problem.line}"
    pointer = problem.pointer or "(document)"
    return f"{place}: {problem.severity} {problem.code} {pointer}: {problem.message}"
