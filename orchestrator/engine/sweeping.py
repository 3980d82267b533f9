"""Working through what a sweep found, so that one broken row does not stop the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

from django.db import InterfaceError, OperationalError

from orchestrator.core.errors import Unreadable
from orchestrator.engine.halting import halt, run_of

logger = logging.getLogger(__name__)

Found = TypeVar("Found")


def each(found: Iterable[Found], act: Callable[[Found], bool]) -> int:
    """Act on each; how many acts did something. What raises is logged and met again next round;
    a database that is away raises at once."""
    done = 0
    for one in found:
        try:
            done += act(one)
        except (OperationalError, InterfaceError):
            raise
        except Unreadable as cause:
            run_id = run_of(one)
            if run_id is not None:
                halt(run_id, cause)
        except Exception:
            logger.exception("a sweep could not handle %s; it goes on with the others", one)
    return done
