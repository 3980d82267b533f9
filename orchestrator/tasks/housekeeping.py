"""What beat asks for: the second path of the sweeps and of the watch, the invariants, the books."""

from __future__ import annotations

import logging

from celery import shared_task
from django.db import DatabaseError, connection

from orchestrator import engine
from orchestrator.ops.comparing import compare_in_turn
from orchestrator.ops.replay_sample import replay_in_turn
from orchestrator.ops.verifying import verify_in_turn
from orchestrator.ops.watch import look_in_turn

logger = logging.getLogger(__name__)


@shared_task(name="orchestrator.tick", acks_late=True)
def tick() -> None:
    """One round of all sweeps, and a look around if it is time; safe beside any number of others.
    A database that is away is the next tick's affair."""
    try:
        engine.beat_once()
        look_in_turn()
    except DatabaseError as error:
        logger.warning("the tick met a database that is away: %s", error)
        connection.close()


@shared_task(name="orchestrator.verify", acks_late=True)
def verify() -> None:
    """Check the invariants of the runs that changed; an alert for each that is broken. Two at once
    do it once."""
    try:
        verify_in_turn()
    except DatabaseError as error:
        logger.warning("the invariants were not checked, the database is away: %s", error)
        connection.close()


@shared_task(name="orchestrator.replay", acks_late=True)
def replay() -> None:
    """Replay a sample of the runs that ended; an alert while too few come out as recorded. Two at
    once do it once."""
    try:
        replay_in_turn()
    except DatabaseError as error:
        logger.warning("nothing was replayed, the database is away: %s", error)
        connection.close()


@shared_task(name="orchestrator.compare_providers", acks_late=True)
def compare_providers() -> None:
    """Compare the providers' books with our receipts; an alert for each that differs. Two at once
    do it once."""
    try:
        compare_in_turn()
    except DatabaseError as error:
        logger.warning("the books were not compared, the database is away: %s", error)
        connection.close()


@shared_task(name="orchestrator.forget", acks_late=True)
def forget() -> None:
    """Forget receipts that are older than the setting says; nothing without it."""
    try:
        count = engine.forget_old_effects()
    except DatabaseError as error:
        logger.warning("no receipt was forgotten, the database is away: %s", error)
        connection.close()
        return
    if count:
        logger.info("%d receipts were older than EFFECT_RETENTION and are forgotten", count)
