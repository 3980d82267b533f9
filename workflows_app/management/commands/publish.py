"""``manage.py publish FILE…``: check documents and make them what new runs use."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from orchestrator.core.source import SourceError
from workflows_app.errors import DocumentRefused
from workflows_app.management.terminal import (
    add_tenant,
    operator,
    problem_lines,
    read_document,
    tenant_of,
)
from workflows_app.publishing import publish


class Command(BaseCommand):
    """Publish each file; all are tried, and the exit status is 1 when one was refused."""

    help = "Publish workflow documents (YAML or JSON)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """``FILE… [--tenant T]``."""
        parser.add_argument("files", nargs="+", metavar="FILE")
        add_tenant(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Publish in the order given: children before the parents that call them."""
        tenant = tenant_of(options)
        failed = [path for path in options["files"] if not self._publish(tenant, path)]
        if failed:
            raise CommandError(f"Not published: {', '.join(failed)}.")

    def _publish(self, tenant: str, path: str) -> bool:
        source, media_type = read_document(path)
        try:
            done = publish(tenant, source, media_type, actor=operator(tenant).actor)
        except (DocumentRefused, SourceError) as error:
            found = error.findings if isinstance(error, DocumentRefused) else error.problems
            self.stderr.write("\n".join(problem_lines(path, found)))
            return False
        for line in problem_lines(path, done.warnings):
            self.stderr.write(line)
        version = done.version
        news = "published" if done.created else "unchanged"
        self.stdout.write(
            f"{version.workflow.name} version {version.number} {news}"
            f" ({version.blueprint.digest[:12]})"
        )
        return True
