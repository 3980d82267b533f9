"""``python -m tests.chaos.nursery LOGS PARENT``: forks the product's parts on request.

It has imported everything once, so that a drill may end and start dozens of parts a minute.

One JSON order a line on stdin: ``{"part": "worker-tool", "name": "worker-tool#3", "notify":
"@address", "fuse": true, "read_url": null}``; the answer on stdout is the child's pid. At the end
of stdin, or when the parent dies, everything that was forked is ended.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import django
import orjson
from django.conf import settings
from django.core.management import call_command

from config.celery import app
from config.lifeline import die_with_parent
from config.stack.forked import ForkedChild
from config.stack.parts import WORKER_GROUPS, worker

MODULES = (
    "celery.apps.beat",
    "celery.apps.worker",
    "celery.bin.celery",
    "celery.concurrency.prefork",
    "celery.concurrency.thread",
    "django_celery_beat.schedulers",
)


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
            order = orjson.loads(line)
            children = [child for child in children if child.alive]
            child = ForkedChild(
                name=order["name"],
                argv=(),
                log=logs / f"{order['part']}.log",
                run=part(order),
                env={"NOTIFY_SOCKET": order["notify"], "STACK_PROCESS": order["name"]},
            )
            child.start()
            children.append(child)
            answers.write(f"{child.pid}\n")
    finally:
        for child in children:
            child.kill()


def part(order: dict[str, Any]) -> Callable[[], int | None]:
    """What the child runs: the very parts of ``manage.py stack``."""
    name = order["part"]
    groups = {f"worker-{group.name}": group for group in WORKER_GROUPS}

    def run() -> int | None:
        settings.ORCHESTRATOR = settings.ORCHESTRATOR | {"FUSE": order["fuse"]}
        if order["read_url"]:
            app.conf.update(broker_read_url=order["read_url"])
        if name in groups:
            return worker(groups[name], settings.ORCHESTRATOR["QUEUES"]).run()
        if name == "pulse":
            call_command("pulse")
            return 0
        if name == "beat":
            app.start(["beat", "--loglevel=INFO", "--pidfile="])
            return 0
        raise ValueError(f"no part is called {name}")

    return run


if __name__ == "__main__":
    main()
