"""``manage.py hold SCOPE [NAME] --reason …``: keep work from starting."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from orchestrator import engine
from orchestrator.core.errors import OrchestratorError
from orchestrator.management import holding


class Command(BaseCommand):
    """What runs finishes; what would start waits until it is released."""

    help = "Hold a service, model, tenant, queue, or everything (global)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The target, the reason, and for how long."""
        holding.add_target(parser)
        parser.add_argument("--reason", default="", help="why; it is shown with what waits")
        parser.add_argument("--for", dest="length", help="ends by itself after 30m, 4h, 7d …")
        parser.add_argument(
            "--boot",
            action="store_true",
            help="hold everything if ORCHESTRATOR_HELD is set, else do nothing",
        )

    def handle(self, *_: Any, **options: Any) -> None:
        """Hold it."""
        if options["boot"]:
            self._boot()
            return
        scope, name = holding.target(options)
        until = None
        if options["length"]:
            until = engine.database_now() + holding.duration(options["length"])
        known = scope != "service" or name in {
            s.name for s in engine.services() if s.scope == scope
        }
        try:
            engine.hold(scope, name, reason=options["reason"], actor=holding.actor(), until=until)
        except OrchestratorError as error:
            raise holding.refused(error) from error
        end = f" until {until:%Y-%m-%d %H:%M:%S} UTC" if until else ""
        again = f"manage.py release {scope} {name}".strip()
        self.stdout.write(f"Held: {scope} {name}".strip() + f"{end}. To let it go: {again}")
        if not known:
            self.stdout.write(
                f"No tool names service {name}, and no step has called it: compare the name with"
                " manage.py breakers."
            )

    def _boot(self) -> None:
        if not settings.ORCHESTRATOR.get("HELD"):
            return
        try:
            fresh = engine.hold_at_boot(reason="started with ORCHESTRATOR_HELD")
        except OrchestratorError as error:
            raise CommandError(str(error)) from error
        word = "Held" if fresh else "Still held"
        self.stdout.write(f"{word}: nothing starts until manage.py release global")
