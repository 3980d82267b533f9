"""``manage.py pulse``: the sweeps, each second; any number may run."""

from __future__ import annotations

import signal
import threading
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand
from django.db import DatabaseError, connection

from orchestrator import engine


class Command(BaseCommand):
    """Timers, lost workers, lost messages, the outbox: one round after the other."""

    help = "Run the engine's sweeps each second until stopped."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """One option: the pause between two idle rounds."""
        parser.add_argument("--every", type=float, default=0.5, help="seconds between idle rounds")
        parser.add_argument("--once", action="store_true", help="one round, then end")

    def handle(self, *_: Any, **options: Any) -> None:
        """Loop until SIGTERM, SIGINT or SIGHUP."""
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: stop.set())
        away = False
        while not stop.is_set():
            busy = False
            try:
                connection.close_if_unusable_or_obsolete()
                busy = engine.beat_once().busy
                if away:
                    self.stdout.write("the database answers again")
                away = False
            except DatabaseError as error:
                if not away:
                    self.stderr.write(f"the database is away, trying each second: {error}")
                away = True
                connection.close()
            if options["once"]:
                return
            stop.wait(0.02 if busy else options["every"])
