"""How many messages wait in a queue, asked of the broker."""

from __future__ import annotations

import logging

from celery import current_app

from orchestrator.tasks.broker import broker_errors

logger = logging.getLogger(__name__)


def queue_depth(queue: str) -> int:
    """Messages waiting; 0 when there is no such queue, or the broker is away."""
    try:
        with current_app.connection_or_acquire() as broker:
            # Not passive: kombu asks for the key without our prefix then, and finds no queue.
            # Declaring writes nothing on this transport; it answers the length.
            declared = broker.default_channel.queue_declare(queue)
    except broker_errors() as error:
        logger.debug("depth of %s is unknown: %s", queue, error)
        return 0
    return int(declared.message_count)
