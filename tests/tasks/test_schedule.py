"""The engine's entries in beat's schedule."""

from __future__ import annotations

import pytest
from django.apps import apps
from django.core.management import call_command
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from orchestrator.tasks.schedule import ENTRIES, TICK, ensure_entries

pytestmark = pytest.mark.django_db


def test_a_migrated_database_has_the_tick_in_its_schedule() -> None:
    entry = PeriodicTask.objects.get(name=TICK.name)

    assert (entry.task, entry.queue, entry.enabled) == ("orchestrator.tick", "engine", True)
    assert str(entry.interval) == "every 5 seconds"
    assert entry.expire_seconds == 5


def test_what_an_operator_changed_survives_the_next_migration() -> None:
    slow = IntervalSchedule.objects.create(every=1, period=IntervalSchedule.MINUTES)
    PeriodicTask.objects.filter(name=TICK.name).update(enabled=False, interval=slow)

    call_command("migrate", verbosity=0)

    entry = PeriodicTask.objects.get(name=TICK.name)
    assert (entry.enabled, entry.interval) == (False, slow)
    assert PeriodicTask.objects.filter(task="orchestrator.tick").count() == 1


def test_a_deleted_entry_comes_back() -> None:
    PeriodicTask.objects.all().delete()

    ensure_entries(apps.get_app_config("orchestrator"), using="default")

    assert PeriodicTask.objects.filter(name=TICK.name).exists()


def test_the_invariants_are_checked_each_five_minutes() -> None:
    entry = PeriodicTask.objects.get(task="orchestrator.verify")
    assert (str(entry.interval), entry.queue, entry.enabled) == (
        "every 300 seconds",
        "engine",
        True,
    )
    assert PeriodicTask.objects.filter(name__startswith="orchestrator:").count() == len(ENTRIES)
