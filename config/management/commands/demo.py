"""``manage.py demo``: from nothing to a finished workflow, watched at the terminal."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from config.demo.cast import assemble
from config.demo.exhibits import leave_orders_open
from config.demo.screen import Screen
from config.demo.tour import Tour
from config.env import BASE_DIR, environment, generated_secret
from config.servers import read_state
from config.stack.parts import FLOWER_USER
from config.stack.supervisor import Supervisor
from orchestrator.core.errors import InvalidRequest, OrchestratorError

INTERRUPTED = 130


class Command(BaseCommand):
    """Start the whole product, run customer support once, and leave everything to look at.

    With ``ONCE=1`` in the environment it stops all at the end; the exit status is then 0 only if
    the run completed. Beside a stack that is already running it shows the run there.
    """

    help = "Start everything and watch one workflow run (ONCE=1: stop at its end)."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """``--tour``: only the run, in a stack that is up."""
        parser.add_argument("--tour", action="store_true", help="only the run, in a running stack")

    def handle(self, *args: Any, **options: Any) -> None:
        """Exit with the status of the run, or of the stack."""
        if options["tour"] or read_state(environment().data_dir):
            sys.exit(_tour())
        # Flower shows what workers tell it; here everything may be seen.
        os.environ.setdefault("TASK_EVENTS", "1")
        supervisor = Supervisor(
            environment(),
            then=[sys.executable, str(BASE_DIR / "manage.py"), "demo", "--tour"],
            once=os.environ.get("ONCE") == "1",
        )
        sys.exit(supervisor.run())


def _tour() -> int:
    # The story is the output; what goes wrong is told in it, and the rest is in the logs.
    logging.getLogger().setLevel(logging.ERROR)
    data_dir = environment().data_dir.resolve()
    screen = Screen()
    try:
        cast = assemble(data_dir)
        screen.say(f"Published: {', '.join(cast.workflows)}.", colour="dim")
        screen.say()
        completed = Tour(cast=cast, screen=screen, links=_links(data_dir)).give()
        if os.environ.get("ONCE") != "1":
            leave_orders_open(cast)
            screen.say("Two orders wait in the console for your approval. All of it stays up until")
            screen.say("the stack is stopped (Ctrl-C).")
    except KeyboardInterrupt:
        screen.say()
        return INTERRUPTED
    except OrchestratorError as error:
        screen.say(_explained(error), colour="red")
        return 1
    return 0 if completed else 1


def _explained(error: OrchestratorError) -> str:
    problems = error.problems if isinstance(error, InvalidRequest) else []
    return "\n  ".join([str(error), *(f"{each['pointer']}: {each['detail']}" for each in problems)])


def _links(data_dir: Path) -> dict[str, str]:
    links: dict[str, str] = dict(read_state(data_dir).get("links", {}))
    if "Flower" in links:
        links["flower_user"] = FLOWER_USER
        links["flower_password"] = generated_secret(data_dir / "flower_password")
    return links
