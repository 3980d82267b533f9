"""The engine's own entry in beat's schedule: seen, and switched off, in the admin."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.db import connections
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from orchestrator.tasks.housekeeping import tick

NAME = "orchestrator: sweeps"
EVERY_S = 5
DESCRIPTION = (
    "The second path of the engine's sweeps (timers, lost workers, lost messages), beside the"
    " processes of manage.py pulse. A tick that nobody took within its interval is dropped; two at"
    " once do no harm."
)


def ensure_tick(sender: AppConfig, *, using: str, **_: Any) -> None:
    """Add the entry after a migration; one that is there stays as an operator left it.

    A receiver of ``post_migrate``. Does nothing while beat's tables are not there (a migration
    that stopped half way).
    """
    del sender
    if PeriodicTask._meta.db_table not in connections[using].introspection.table_names():  # noqa: SLF001
        return
    every, _ = IntervalSchedule.objects.using(using).get_or_create(
        every=EVERY_S, period=IntervalSchedule.SECONDS
    )
    PeriodicTask.objects.using(using).get_or_create(
        name=NAME,
        defaults={
            "task": tick.name,
            "interval": every,
            "queue": "engine",
            "expire_seconds": EVERY_S,
            "description": DESCRIPTION,
        },
    )
