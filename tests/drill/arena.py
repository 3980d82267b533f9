"""A PostgreSQL of its own whose clock can be turned, for drills that need no broker."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from django.core.management import call_command
from django.db import connection

from config import embedded
from tests.chaos.processes import aimed_at
from tests.conftest import CLOCK

NO_BROKER = "redis://127.0.0.1:1/0"


@dataclass
class Arena:
    """The server; it may be hurt."""

    cluster: embedded.Cluster
    postgres: embedded.Child

    @property
    def socket(self) -> str:
        """Where it listens."""
        return str(self.cluster.socket / ".s.PGSQL.5432")

    def restart(self) -> None:
        """As by ``pg_ctl restart -m immediate``: no checkpoint, every connection is cut."""
        self.postgres.signal(signal.SIGQUIT)
        assert self.postgres.wait(20), "PostgreSQL did not stop"
        self.postgres.kill()
        self.cluster.prepare()
        self.postgres = self.cluster.server()
        self.postgres.start()
        embedded.wait_ready(self.cluster, self.postgres)


@contextmanager
def arena(*, durable: bool = False) -> Iterator[Arena]:
    """This process's Django talks to a fresh, migrated database for the length of the block."""
    cluster = embedded.cluster(Path(tempfile.mkdtemp(prefix="arena-")), durable=durable)
    cluster.prepare()
    here = Arena(cluster, cluster.server())
    try:
        here.postgres.start()
        embedded.wait_ready(cluster, here.postgres)
        with aimed_at({"DATABASE_URL": cluster.url, "BROKER_URL": NO_BROKER}):
            call_command("migrate", verbosity=0)
            with connection.cursor() as cursor:
                cursor.execute(CLOCK)
            yield here
    finally:
        here.postgres.stop()
        cluster.tidy()


def turn(seconds: float) -> None:
    """It is later; a lease that nobody holds any more is over. Unlike ``turn_time`` of the tests
    this does not keep leases alive: call it where no worker lives."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE orchestrator_clock SET turned_by = turned_by + %s", [timedelta(seconds=seconds)]
        )
