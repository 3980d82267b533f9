"""Working through what a sweep found, so that one broken row does not stop the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

from django.db import InterfaceError, OperationalError

from orchestrator.core.errors import OrchestratorError, Unreadable
from orchestrator.engine.halting import halt, run_of
from orchestrator.engine.unwritable import Unwritable, why_unwritable

logger = logging.getLogger(__name__)

Found = TypeVar("Found")


def each(found: Iterable[Found], act: Callable[[Found], bool]) -> int:
    """Act on each; how many acts did something. What raises is logged and met again next round;
    a database that is away raises at once. A run whose state cannot be read, or that can not even
    be written as failed, is halted."""
    done = 0
    for one in found:
        try:
            done += act(one)
        except (Unreadable, Unwritable) as cause:
            _halt(one, cause)
        except Exception as error:
            why = why_unwritable(error)
            if why is not None:
                _halt(one, Unwritable(why))
            elif isinstance(error, OperationalError | InterfaceError):
                raise
            else:
                logger.exception("a sweep could not handle %s; it goes on with the others", one)
    return done


def _halt(found: object, cause: OrchestratorError) -> None:
    run_id = run_of(found)
    if run_id is None:
        logger.error("a sweep could not handle %s: %s", found, cause)
    else:
        halt(run_id, cause)
