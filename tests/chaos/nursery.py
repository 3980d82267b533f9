"""``python -m tests.chaos.nursery LOGS PARENT``: forks the product's parts on request.

It has imported everything once, so that a drill may end and start dozens of parts a minute.

One JSON order a line on stdin: ``{"part": "worker-tool", "name": "worker-tool#3", "notify":
"@address", "fuse": true}``, and what else ``Order`` knows; the answer on stdout is the child's pid.
At the end of stdin, or when the parent dies, everything that was forked is ended.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path

import django
import orjson
import time_machine
from django.conf import settings
from django.core.management import call_command

from config.celery import app
from config.env import environment
from config.lifeline import die_with_parent
from config.servers import django_database
from config.stack.forked import ForkedChild
from config.stack.parts import WORKER_GROUPS, web, worker

MODULES = (
    "celery.apps.beat",
    "celery.apps.worker",
    "celery.bin.celery",
    "celery.concurrency.prefork",
    "celery.concurrency.thread",
    "django_celery_beat.schedulers",
)


@dataclass(frozen=True)
class Order:
    """A part, and what is special about its world.

    ``read_url``: it gets its messages from there. ``database_url``, ``broker_url``: its way to the
    servers. ``skew_s``: its clock is so many seconds off. ``port``: where the web part listens.
    """

    part: str
    name: str
    notify: str
    fuse: bool = True
    read_url: str | None = None
    database_url: str | None = None
    broker_url: str | None = None
    skew_s: float = 0.0
    port: int = 0
    after_restore: bool = False

    def apply(self) -> None:
        """Make this process's world so."""
        settings.ORCHESTRATOR = settings.ORCHESTRATOR | {
            "FUSE": self.fuse,
            "AFTER_RESTORE": self.after_restore,
        }
        if self.database_url:
            settings.DATABASES["default"].update(django_database(self.database_url))
        if self.broker_url:
            os.environ["BROKER_URL"] = self.broker_url  # an option of Celery's command line, too
            settings.CELERY_BROKER_URL = settings.CELERY_RESULT_BACKEND = self.broker_url
            app.conf.update(broker_url=self.broker_url, result_backend=self.broker_url)
        if self.read_url:
            app.conf.update(broker_read_url=self.read_url)
        if self.skew_s:
            there = datetime.now(UTC) + timedelta(seconds=self.skew_s)
            time_machine.travel(there, tick=True).start()  # what it forks is as wrong as it is


def main() -> None:
    """Fork on request until stdin ends."""
    logs, parent = Path(sys.argv[1]), int(sys.argv[2])
    die_with_parent(signal.SIGKILL, parent=parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's affair
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    django.setup()
    for name in MODULES:
        import_module(name)
    gc.freeze()
    answers.write("ready\n")

    children: list[ForkedChild] = []
    try:
        for line in sys.stdin:
            order = Order(**orjson.loads(line))
            children = [child for child in children if child.alive]
            child = ForkedChild(
                name=order.name,
                argv=(),
                log=logs / f"{order.part}.log",
                run=part(order),
                env={"NOTIFY_SOCKET": order.notify, "STACK_PROCESS": order.name},
            )
            child.start()
            children.append(child)
            answers.write(f"{child.pid}\n")
    finally:
        for child in children:
            child.kill()


def part(order: Order) -> Callable[[], int | None]:
    """What the child runs: the very parts of ``manage.py stack``."""
    groups = {f"worker-{group.name}": group for group in WORKER_GROUPS}

    def run() -> int | None:
        order.apply()
        if order.part in groups:
            return worker(groups[order.part], settings.ORCHESTRATOR["QUEUES"]).run()
        if order.part == "web":
            return web(environment().model_copy(update={"web_port": order.port})).run()
        if order.part == "pulse":
            call_command("pulse")
            return 0
        if order.part == "beat":
            app.start(["beat", "--loglevel=INFO", "--pidfile="])
            return 0
        raise ValueError(f"no part is called {order.part}")

    return run


if __name__ == "__main__":
    main()
