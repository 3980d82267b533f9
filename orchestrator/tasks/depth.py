"""How many messages wait in a queue, asked of the broker."""

from __future__ import annotations

import logging

from celery import current_app

from orchestrator.tasks.broker import broker_errors

logger = logging.getLogger(__name__)


def queue_depth(queue: str) -> int:
    """Messages waiting; 0 when the queue does not exist yet, or the broker is away."""
    try:
        with current_app.connection_or_acquire() as broker:
            declared = broker.default_channel.queue_declare(queue, passive=True)
    except broker_errors() as error:
        logger.debug("depth of %s is unknown: %s", queue, error)
        return 0
    return int(declared.message_count)
