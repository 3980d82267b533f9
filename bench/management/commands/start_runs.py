"""``manage.py start_runs``: a client of the bench, a process of its own."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from bench.documents import BODIES
from bench.sides import Ours


class Command(BaseCommand):
    """Start many runs through the engine's face, as one caller that waits for each call."""

    help = "Starts runs of a shape of the bench once it reads a line."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """What, and how many."""
        parser.add_argument("shape", choices=BODIES)
        parser.add_argument("count", type=int)

    def handle(self, *_: Any, **options: Any) -> None:
        """Ready, wait for a line, start, done."""
        ours = Ours()
        self.stdout.write("ready")
        self.stdout.flush()
        sys.stdin.readline()
        for _number in range(options["count"]):
            ours.start(options["shape"])
        self.stdout.write("done")
