"""Beat's scheduler, so that no other beat's wrong clock silences it."""

from __future__ import annotations

from typing import Any

from django_celery_beat.schedulers import DatabaseScheduler, ModelEntry


class SteadyEntry(ModelEntry):  # type: ignore[misc]
    """django-celery-beat's entry, with one fault of 2.9 mended.

    All beats share the row's ``last_run_at``. A beat whose clock is an hour ahead writes an instant
    of the future there, and every other beat then waits for an hour before it ticks again.
    """

    def __init__(self, model: Any, app: Any = None) -> None:
        super().__init__(model, app=app)
        now = self._default_now()
        if model.last_run_at > now:
            self.last_run_at = model.last_run_at = now


class SteadyScheduler(DatabaseScheduler):  # type: ignore[misc]
    """The database's schedule, read with mended entries."""

    Entry = SteadyEntry
