"""The Celery app and what each worker process does around tasks.

The settings stand in ``config.settings.base`` (``CELERY_*``), each with the failure it avoids.
"""

from __future__ import annotations

import os
import signal
from typing import Any

from celery import Celery
from celery.signals import beat_init, task_prerun, worker_init, worker_process_init, worker_ready
from django.conf import settings
from kombu import Queue
from kombu.transport import TRANSPORT_ALIASES

from config.connections import look_at_connections
from config.lifeline import die_with_parent, tell_ready

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.dev")

app = Celery("orchestrator")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.task_queues = [Queue(name, routing_key=name) for name in settings.ORCHESTRATOR["QUEUES"]]
# A worker outlives a restart of the broker.
TRANSPORT_ALIASES |= dict.fromkeys(("redis", "rediss"), "config.transport:SteadyTransport")
# The result store counts the headers of chords and subscribes to nothing.
app.loader.override_backends = dict.fromkeys(
    ("redis", "rediss"), "orchestrator.tasks.results:ChordCounts"
)
# Celery's Django fixup would close the connection after each task; we keep it and check it instead
# (see _check_connections), which is worth milliseconds a step.
app.conf["CELERY_DB_REUSE_MAX"] = 10**9
app.set_default()
app.autodiscover_tasks(["orchestrator", "workflows_app", "approvals_app"])


@task_prerun.connect
def _check_connections(**_: Any) -> None:
    look_at_connections()


@worker_init.connect
def _remember_the_worker(**_: Any) -> None:
    os.environ["WORKER_PID"] = str(os.getpid())


@worker_process_init.connect
def _die_with_the_worker(**_: Any) -> None:
    """A pool child whose worker was killed holds nothing that a lease does not free: end it."""
    die_with_parent(signal.SIGKILL, parent=int(os.environ["WORKER_PID"]))


@worker_ready.connect
@beat_init.connect
def _report_ready(**_: Any) -> None:
    tell_ready()
