"""A PostgreSQL of its own whose clock can be turned, for drills that need no broker."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

from django.core.management import call_command
from django.db import connection

from config import embedded
from tests.chaos.processes import aimed_at
from tests.conftest import CLOCK

NO_BROKER = "redis://127.0.0.1:1/0"


@contextmanager
def arena(*, durable: bool = False) -> Iterator[embedded.Cluster]:
    """This process's Django talks to a fresh, migrated database for the length of the block."""
    folder = Path(tempfile.mkdtemp(prefix="arena-"))
    cluster = embedded.cluster(folder, durable=durable)
    with ExitStack() as running:
        embedded.wait_ready(cluster, embedded.start(cluster, running))
        with aimed_at({"DATABASE_URL": cluster.url, "BROKER_URL": NO_BROKER}):
            call_command("migrate", verbosity=0)
            with connection.cursor() as cursor:
                cursor.execute(CLOCK)
            yield cluster


def turn(seconds: float) -> None:
    """It is later; a lease that nobody holds any more is over. Unlike ``turn_time`` of the tests
    this does not keep leases alive: call it where no worker lives."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE orchestrator_clock SET turned_by = turned_by + %s", [timedelta(seconds=seconds)]
        )
