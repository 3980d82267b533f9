"""``manage.py runs``: the newest runs, one a line."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from orchestrator.core.states import RunState
from workflows_app import queries
from workflows_app.management.terminal import add_tenant, tenant_of
from workflows_app.queries import RunFilter


class Command(BaseCommand):
    """Id, workflow, version, state and age; newest first."""

    help = "List runs, newest first."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """``[--state S]… [--workflow W] [--limit N] [--tenant T]``."""
        states = [str(state) for state in RunState]
        parser.add_argument("--state", action="append", default=[], choices=states)
        parser.add_argument("--workflow", default="")
        parser.add_argument("--limit", type=int, default=20)
        add_tenant(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """A line for each run."""
        wanted = RunFilter(states=options["state"], workflow=options["workflow"])
        found = queries.runs(tenant_of(options), wanted).order_by("-id")
        for run in found[: max(1, options["limit"])]:
            state = f"{run.state} ({run.waiting_for})" if run.waiting_for else run.state
            self.stdout.write(
                f"{run.id}  {run.created_at:%Y-%m-%d %H:%M:%S}  {state:<20}"
                f"  {run.workflow}@{run.workflow_version}"
            )
