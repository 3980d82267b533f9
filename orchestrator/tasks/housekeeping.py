"""The second path of the sweeps: a beat tick each few seconds, beside ``manage.py pulse``."""

from __future__ import annotations

from celery import shared_task

from orchestrator import engine


@shared_task(name="orchestrator.tick", acks_late=True)
def tick() -> None:
    """One round of all sweeps; safe beside any number of others."""
    engine.beat_once()
