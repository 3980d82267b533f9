"""Outlasting a database that is away for a moment: a result in hand is not thrown away.

The whole unit is repeated on a lost connection, a deadlock or a serialization failure (DESIGN
section 2, 11). If the lost answer was that of a COMMIT, the repetition finds the step settled and
changes nothing.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from django.db import DatabaseError, InterfaceError, OperationalError, connection

logger = logging.getLogger(__name__)

PATIENCE_S = 30.0
_PAUSE_S = (0.05, 0.5)
_STOOD_STILL = "25P03"  # idle_in_transaction_session_timeout: Django calls it an internal error
_TOO_MUCH = "54"  # a limit of the server: Django calls it operational, and it stays

Result = TypeVar("Result")


def is_away(error: DatabaseError | InterfaceError) -> bool:
    """Whether the database is away, or has ended this session: doing it all again may work."""
    state = getattr(error.__cause__, "sqlstate", None) or ""
    if isinstance(error, OperationalError | InterfaceError):
        return not state.startswith(_TOO_MUCH)
    return bool(state == _STOOD_STILL)


def outlast(act: Callable[[], Result], *, patience_s: float = PATIENCE_S) -> Result:
    """``act()``, repeated while the database is away; after ``patience_s`` the error is raised."""
    give_up_at = time.monotonic() + patience_s
    while True:
        try:
            return act()
        except (DatabaseError, InterfaceError) as error:
            if not is_away(error) or connection.in_atomic_block or time.monotonic() > give_up_at:
                raise
            logger.warning("the database is away; a result in hand is kept and tried again")
            connection.close()
            time.sleep(random.uniform(*_PAUSE_S))  # noqa: S311 - spreads the return
