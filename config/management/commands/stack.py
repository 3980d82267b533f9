"""``manage.py stack``: the whole product on this machine, supervised, until Ctrl-C."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from config.env import BASE_DIR, environment
from config.stack.supervisor import Supervisor


class Command(BaseCommand):
    """Starts servers, web, workers, pulse, beat and Flower, and stops them all together."""

    help = "Run the whole product: PostgreSQL, Valkey, web, workers, pulse, beat, Flower."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Options of the command."""
        parser.add_argument("--no-flower", action="store_true", help="leave Flower out")
        parser.add_argument(
            "--once", action="store_true", help="stop when the command after --then has ended"
        )
        parser.add_argument(
            "--then",
            nargs=argparse.REMAINDER,
            default=[],
            metavar="COMMAND",
            help="a manage.py command with its arguments, run at this terminal once all is ready",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Run until told to stop, then exit with the status of the stack or of --then."""
        then = options["then"]
        supervisor = Supervisor(
            environment(),
            then=[sys.executable, str(BASE_DIR / "manage.py"), *then] if then else [],
            once=options["once"],
            flower=not options["no_flower"],
        )
        sys.exit(supervisor.run())
