"""The engine's own entries in beat's schedule: seen, and switched off, in the admin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.apps import AppConfig
from django.db import connections
from django_celery_beat.models import CrontabSchedule, IntervalSchedule, PeriodicTask

from orchestrator.tasks.housekeeping import compare_providers, forget, replay, tick, verify


@dataclass(frozen=True, slots=True)
class Entry:
    """One task, each so many seconds, or each night at ``hour`` (UTC). A message that nobody took
    within ``every_s`` is dropped."""

    name: str
    task: str
    every_s: int
    description: str
    hour: int | None = None


TICK = Entry(
    "orchestrator: sweeps",
    tick.name,
    5,
    "The second path of the engine's sweeps (timers, lost workers, lost messages) and of the watch"
    " for orphans, beside the processes of manage.py pulse. A tick that nobody took within its"
    " interval is dropped; two at once do no harm.",
)
VERIFY = Entry(
    "orchestrator: invariants",
    verify.name,
    300,
    "Checks the invariants of the runs that changed since the last time, and opens an alert for"
    " each that is broken. It only reads, and keeps out of the way of live work.",
)
REPLAY = Entry(
    "orchestrator: replay",
    replay.name,
    300,
    "Decides the histories of a sample of the runs that ended anew, keeps how many came out as"
    " recorded, and opens an alert while they are too few (REPLAY_GATE_PERCENT).",
)
COMPARE = Entry(
    "orchestrator: compare providers",
    compare_providers.name,
    6 * 3600,
    "Compares what providers have in their books with our receipts, for every tool that names a"
    " listing, and opens an alert for each book that differs (doubled, unknown, missing).",
    hour=3,
)
FORGET = Entry(
    "orchestrator: old receipts",
    forget.name,
    3600,
    "Deletes settled receipts of runs that ended longer ago than ORCHESTRATOR_EFFECT_RETENTION."
    " Without that setting it does nothing, and receipts are kept for ever.",
)
ENTRIES = (TICK, VERIFY, REPLAY, COMPARE, FORGET)


def ensure_entries(sender: AppConfig, *, using: str, **_: Any) -> None:
    """Add the entries after a migration; one that is there stays as an operator left it.

    A receiver of ``post_migrate``. Does nothing while beat's tables are not there (a migration
    that stopped half way).
    """
    del sender
    if PeriodicTask._meta.db_table not in connections[using].introspection.table_names():  # noqa: SLF001
        return
    for entry in ENTRIES:
        _ensure(entry, using)


def _ensure(entry: Entry, using: str) -> None:
    when: dict[str, Any] = {}
    if entry.hour is None:
        when["interval"], _ = IntervalSchedule.objects.using(using).get_or_create(
            every=entry.every_s, period=IntervalSchedule.SECONDS
        )
    else:
        when["crontab"], _ = CrontabSchedule.objects.using(using).get_or_create(
            minute="10",
            hour=str(entry.hour),
            day_of_week="*",
            day_of_month="*",
            month_of_year="*",
            timezone="UTC",
        )
    PeriodicTask.objects.using(using).get_or_create(
        name=entry.name,
        defaults={
            "task": entry.task,
            **when,
            "queue": "engine",
            "expire_seconds": entry.every_s,
            "description": entry.description,
        },
    )
