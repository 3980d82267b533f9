"""The second path of the sweeps: a beat tick each few seconds, beside ``manage.py pulse``."""

from __future__ import annotations

import logging

from celery import shared_task
from django.db import DatabaseError, connection

from orchestrator import engine

logger = logging.getLogger(__name__)


@shared_task(name="orchestrator.tick", acks_late=True)
def tick() -> None:
    """One round of all sweeps; safe beside any number of others. A database that is away is the
    next tick's affair."""
    try:
        engine.beat_once()
    except DatabaseError as error:
        logger.warning("the tick met a database that is away: %s", error)
        connection.close()
