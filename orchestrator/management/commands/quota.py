"""``manage.py quota SCOPE NAME MAX|none``: how many steps may be at work at once."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from orchestrator import engine
from orchestrator.core.errors import OrchestratorError
from orchestrator.management import holding


class Command(BaseCommand):
    """What does not fit waits, and goes on in turns between tenants and runs."""

    help = "Bound the steps at work of a tenant, queue or service; `none` takes the bound away."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Whose, and how many."""
        parser.add_argument("scope", choices=engine.QUOTA_SCOPES)
        parser.add_argument("name")
        parser.add_argument("max", help="steps at once, or none")
        parser.add_argument("--reason", default="set at the terminal", help="why")

    def handle(self, *_: Any, **options: Any) -> None:
        """Set it, change it, or take it away."""
        scope, name, most = options["scope"], options["name"], options["max"]
        if most != "none" and not most.isdecimal():
            raise CommandError(f"{most} is no number of steps: give one, or none.")
        try:
            if most == "none":
                engine.drop_quota(scope, name)
            else:
                engine.set_quota(
                    scope,
                    name,
                    max_in_flight=int(most),
                    reason=options["reason"],
                    actor=holding.actor(),
                )
        except OrchestratorError as error:
            raise holding.refused(error) from error
        bound = "has no bound now" if most == "none" else f"may have {most} steps at work at once"
        self.stdout.write(f"{scope} {name} {bound}.")
