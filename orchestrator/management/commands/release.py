"""``manage.py release SCOPE [NAME]``: let go what was held."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from orchestrator import engine
from orchestrator.core.errors import OrchestratorError
from orchestrator.management import holding


class Command(BaseCommand):
    """What waits starts in turns, the oldest first."""

    help = "Release a service, model, tenant, queue, or everything (global)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The target and the reason."""
        holding.add_target(parser)
        parser.add_argument("--reason", default="", help="why")

    def handle(self, *_: Any, **options: Any) -> None:
        """Release it."""
        scope, name = holding.target(options)
        try:
            engine.release_hold(scope, name, reason=options["reason"], actor=holding.actor())
        except OrchestratorError as error:
            raise holding.refused(error) from error
        self.stdout.write(f"Released: {scope} {name}".strip())
