"""``manage.py pulse``: the sweeps, each second, and the watch; any number may run."""

from __future__ import annotations

import logging
import signal
import threading
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, connection

from orchestrator import engine
from orchestrator.ops.watch import look_in_turn

logger = logging.getLogger(__name__)

ASK_S = 5.0
"""How often each pulse asks whether it is its turn to look around."""


class Command(BaseCommand):
    """Timers, lost workers, lost messages, the outbox: one round after the other."""

    help = "Run the engine's sweeps each second until stopped."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """One option: the pause between two idle rounds."""
        parser.add_argument("--every", type=float, default=0.5, help="seconds between idle rounds")
        parser.add_argument("--once", action="store_true", help="one round, then end")

    def handle(self, *_: Any, **options: Any) -> None:
        """Loop until SIGTERM, SIGINT or SIGHUP."""
        if options["once"]:
            self._once()
            return
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: stop.set())
        # The sweeps never wait for a look: it has a thread, and a connection, of its own.
        watch = threading.Thread(target=_watch, args=(stop,), name="watch", daemon=True)
        watch.start()
        self._beat(stop, options["every"])
        watch.join(ASK_S)

    def _once(self) -> None:
        try:
            self._round()
            look_in_turn()
        except DatabaseError as error:
            raise CommandError(f"the database is away: {error}") from error

    def _beat(self, stop: threading.Event, every: float) -> None:
        away = False
        while not stop.is_set():
            busy = False
            try:
                busy = self._round()
                if away:
                    self.stdout.write("the database answers again")
                away = False
            except DatabaseError as error:
                if not away:
                    self.stderr.write(f"the database is away, trying each second: {error}")
                away = True
                connection.close()
            stop.wait(0.02 if busy else every)

    def _round(self) -> bool:
        connection.close_if_unusable_or_obsolete()
        return engine.beat_once().busy


def _watch(stop: threading.Event) -> None:
    """Look around whenever it is our turn; whatever a look meets, the next one comes."""
    while not stop.wait(ASK_S):
        try:
            connection.close_if_unusable_or_obsolete()
            look_in_turn()
        except DatabaseError as error:
            logger.warning("the watch could not look, it tries again: %s", error)
            connection.close()
        except Exception:
            logger.exception("the watch met something it could not handle; it goes on")
    connection.close()
