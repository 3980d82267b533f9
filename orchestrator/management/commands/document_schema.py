"""``manage.py document_schema``: the JSON Schema of workflow documents, for editors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from orchestrator.core.document_schema import document_schema_text


class Command(BaseCommand):
    """Print the schema, or write it to a file."""

    help = "Write the JSON Schema of workflow documents (kept in docs/schema for editors)."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        """One optional file."""
        parser.add_argument(
            "--output", metavar="FILE", help="e.g. docs/schema/workflow.schema.json; else printed"
        )

    def handle(self, *_: Any, output: str | None = None, **__: Any) -> None:
        """Write and say where."""
        text = document_schema_text()
        if output is None:
            self.stdout.write(text, ending="")
            return
        try:
            Path(output).write_text(text, encoding="utf-8")
        except OSError as error:
            raise CommandError(f"{output} cannot be written: {error.strerror}") from error
        self.stdout.write(f"{output} written")
