"""``manage.py convert SOURCE``: one workflow in another of its faces, without loss."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
from django.core.management.base import BaseCommand, CommandError

from orchestrator.authoring import WorkflowError, to_python
from orchestrator.core.definition import parse_document
from orchestrator.core.problems import suggestion
from orchestrator.core.source import SourceError
from orchestrator.core.yaml_writing import to_yaml
from workflows_app import publishing
from workflows_app.discovery import find_workflows
from workflows_app.management.terminal import problem_lines, read_document


def _to_json(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n"


WRITERS: dict[str, Callable[[Any], str]] = {
    "python": to_python,
    "yaml": to_yaml,
    "json": _to_json,
}


class Command(BaseCommand):
    """Print the workflow as Python, YAML or JSON; its canonical bytes stay the same."""

    help = "Write a workflow (a FILE, or one of a workflows.py by name) as Python, YAML or JSON."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """``SOURCE --to python|yaml|json``."""
        parser.add_argument("source", metavar="FILE|NAME")
        parser.add_argument("--to", required=True, choices=sorted(WRITERS))

    def handle(self, *args: Any, **options: Any) -> None:
        """Print it."""
        source: str = options["source"]
        value = self._from_file(source) if Path(source).is_file() else _from_python(source)
        self.stdout.write(WRITERS[options["to"]](value), ending="")

    def _from_file(self, path: str) -> Any:
        try:
            loaded = publishing.load(*read_document(path))
        except SourceError as error:
            self.stderr.write("\n".join(problem_lines(path, error.problems)))
            raise CommandError(f"{path} cannot be read.") from None
        document, problems = parse_document(loaded.value, line_of=loaded.line)
        if document is None:
            self.stderr.write("\n".join(problem_lines(path, problems)))
            raise CommandError(f"{path} is no workflow document.")
        return loaded.value


def _from_python(name: str) -> Any:
    try:
        found = {each.flow.name: each.flow for each in find_workflows()}
    except WorkflowError as error:
        raise CommandError(str(error)) from error
    if name not in found:
        mend = suggestion(name, found)
        raise CommandError(f"{name} is no file, and no workflow of a workflows.py: {mend}")
    return found[name].document()
