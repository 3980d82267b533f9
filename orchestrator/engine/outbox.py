"""What must be told after a commit: child to parent, parent to child, engine to subscribers.

The worker that wrote a message handles it at once; a sweep finds what it left behind. Each
message is handled in its own transaction and deleted in it, so twice at once does it once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from django.db import DatabaseError
from django.utils.module_loading import import_string

from orchestrator.conf import engine_settings
from orchestrator.core.errors import StepError, storable
from orchestrator.crash import Unit
from orchestrator.engine.unwritable import or_refused, why_unwritable
from orchestrator.models import outbox_rows
from orchestrator.models.outbox_rows import Message

logger = logging.getLogger(__name__)

Handler = Callable[[UUID, dict[str, Any]], None]
REFUSED = "refused"
_internal: dict[str, Handler] = {}


def handles(topic: str) -> Callable[[Handler], Handler]:
    """Name the engine's own handler of a topic."""

    def register(handler: Handler) -> Handler:
        _internal[topic] = handler
        return handler

    return register


def handle(numbers: Sequence[int]) -> int:
    """Handle these messages now, each by itself; how many. A failure is left to the sweep."""
    done = 0
    for number in numbers:
        try:
            done += _handle_one(number)
        except DatabaseError:
            logger.warning("outbox message %s: the database is away; later", number, exc_info=True)
    return done


def sweep(limit: int = 100) -> int:
    """Handle what is due and left over; how many."""
    return handle(outbox_rows.due(limit))


def _handle_one(number: int) -> bool:
    """Lock, handle, delete; False when another worker has it. A handler that raises puts the
    message off (1 s, 2 s, … 5 min) and is heard of in the log and on the row."""
    try:
        return or_refused(partial(_try_one, number), "what was told")
    except Exception as error:
        if isinstance(error, DatabaseError) and why_unwritable(error) is None:
            raise
        logger.exception("outbox message %s was not handled; it will be tried again", number)
        outbox_rows.put_off(number, storable(f"{type(error).__name__}: {error}"))
    return False


def _try_one(number: int, refused: StepError | None) -> bool:
    with Unit("outbox"):
        message = outbox_rows.take(number)
        if message is None:
            return False
        for handler in _handlers(message.topic):
            handler(message.run_id, _with_refusal(message, refused))
    return True


def _with_refusal(message: Message, refused: StepError | None) -> dict[str, Any]:
    """What a first try could not write is named to the engine's own handlers: they write that."""
    if refused is None or message.topic not in _internal:
        return message.payload
    return {**message.payload, REFUSED: refused.message}


def _handlers(topic: str) -> list[Handler]:
    own = [_internal[topic]] if topic in _internal else []
    paths = engine_settings().subscribers.get(topic, [])
    return own + [import_string(path) for path in paths]
