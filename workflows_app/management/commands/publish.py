"""``manage.py publish``: check workflows and make them what new runs use."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from orchestrator.authoring import Workflow
from orchestrator.core.problems import Problem
from orchestrator.core.source import SourceError
from workflows_app.discovery import placed
from workflows_app.errors import DocumentRefused
from workflows_app.management.terminal import (
    add_apps,
    add_tenant,
    operator,
    problem_lines,
    read_document,
    tenant_of,
    written_workflows,
)
from workflows_app.publishing import JSON, Published, publish


class Command(BaseCommand):
    """Publish all that is named; each is tried, and the exit status is 1 when one was refused."""

    help = (
        "Publish workflow documents (YAML or JSON); without files the workflows that the"
        " workflows.py of installed apps hold."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """``[FILE… | --app LABEL…] [--tenant T]``."""
        parser.add_argument("files", nargs="*", metavar="FILE")
        add_apps(parser)
        add_tenant(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Files in the order given: children before the parents that call them. Workflows of apps
        are put in that order."""
        written = written_workflows(options)
        tenant = tenant_of(options)
        if written is None:
            failed = [path for path in options["files"] if not self._publish_file(tenant, path)]
        else:
            failed = [flow.name for flow in written if not self._publish_flow(tenant, flow)]
        if failed:
            raise CommandError(f"Not published: {', '.join(failed)}.")

    def _publish_file(self, tenant: str, path: str) -> bool:
        source, media_type = read_document(path)
        try:
            done = publish(tenant, source, media_type, actor=operator(tenant).actor)
        except (DocumentRefused, SourceError) as error:
            self.stderr.write("\n".join(problem_lines(path, _findings(error))))
            return False
        self._tell(done, problem_lines(path, done.warnings))
        return True

    def _publish_flow(self, tenant: str, flow: Workflow) -> bool:
        try:
            done = publish(tenant, flow.to_json().encode(), JSON, actor=operator(tenant).actor)
        except (DocumentRefused, SourceError) as error:
            self.stderr.write("\n".join(placed(flow, _findings(error))))
            return False
        self._tell(done, placed(flow, done.warnings))
        return True

    def _tell(self, done: Published, warnings: Any) -> None:
        for line in warnings:
            self.stderr.write(line)
        version = done.version
        news = "published" if done.created else "unchanged"
        self.stdout.write(
            f"{version.workflow.name} version {version.number} {news}"
            f" ({version.blueprint.digest[:12]})"
        )


def _findings(error: DocumentRefused | SourceError) -> list[Problem]:
    return error.findings if isinstance(error, DocumentRefused) else error.problems
