"""Plain Celery, as a team without an orchestrator would use it: the reference of every ratio.

Results on the same broker, JSON, no events, and the product's own socket options. The broker keeps
a copy of what is not acknowledged, Celery's default, without which a dead worker's tasks are lost.
Workers are started with ``-A bench.plain``.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from typing import Any

from celery import Celery, Task
from celery.signals import worker_init, worker_process_init, worker_ready

from bench.marks import mark, random_length
from config.lifeline import die_with_parent, tell_ready

_URL = os.environ["BROKER_URL"]

app = Celery("plain", broker=_URL, backend=_URL, set_as_current=False)
app.conf.update(
    task_serializer="json",
    result_serializer="json",
    accept_content=["json"],
    result_expires=3600,
    worker_send_task_events=False,
    task_send_sent_event=False,
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        "visibility_timeout": 3600,
        "socket_timeout": 3,
        "socket_keepalive": True,
        "health_check_interval": 10,
        "priority_steps": [0],
        "queue_order_strategy": "round_robin",
        "global_keyprefix": "plain:",
    },
    result_backend_transport_options={"global_keyprefix": "plain:"},
)


@dataclass(frozen=True, slots=True)
class Layout:
    """One way to run plain workers, all on the queue ``queue``."""

    name: str
    queue: str
    pool: str
    concurrency: int
    prefetch: int
    acks_late: bool

    @property
    def other_queue(self) -> str:
        """The second queue, for chains that change it."""
        return f"{self.queue}-other"

    @property
    def task(self) -> Task[..., None]:
        """The no-op task with this layout's kind of acknowledgement."""
        return noop_late if self.acks_late else noop_early


LATE = (
    Layout("prefork c2", "prefork-late", "prefork", 2, 1, acks_late=True),
    Layout("threads c8", "threads-late", "threads", 8, 1, acks_late=True),
)
"""Acknowledged late with prefetch 1, as a durable product must."""

EARLY = (
    Layout("prefork c2, early ack pf4", "prefork-early", "prefork", 2, 4, acks_late=False),
    Layout("threads c8, early ack pf4", "threads-early", "threads", 8, 4, acks_late=False),
)
"""Acknowledged before the body runs: faster, and a killed worker loses its tasks."""


@app.task(name="plain.noop_late", acks_late=True)
def noop_late(key: str) -> None:
    """Do nothing, and say when."""
    began = time.monotonic_ns()
    mark(key, began)


@app.task(name="plain.noop_early", acks_late=False)
def noop_early(key: str) -> None:
    """Do nothing, and say when."""
    began = time.monotonic_ns()
    mark(key, began)


@app.task(name="plain.work_late", acks_late=True)
def work_late(key: str) -> None:
    """Take a random while, and say when."""
    began = time.monotonic_ns()
    time.sleep(random_length())
    mark(key, began)


@app.task(name="plain.heavy_late", acks_late=True)
def heavy_late(key: str, milliseconds: int) -> None:
    """Take a while, and say when."""
    began = time.monotonic_ns()
    time.sleep(milliseconds / 1000)
    mark(key, began)


@worker_init.connect
def _remember_the_worker(**_: Any) -> None:
    os.environ["WORKER_PID"] = str(os.getpid())


@worker_process_init.connect
def _die_with_the_worker(**_: Any) -> None:
    die_with_parent(signal.SIGKILL, parent=int(os.environ["WORKER_PID"]))


@worker_ready.connect
def _report_ready(**_: Any) -> None:
    tell_ready()
