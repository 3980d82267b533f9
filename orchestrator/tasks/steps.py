"""The task behind every wake-up of a step."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from celery import Task, shared_task
from celery.signals import worker_process_init
from django.db import InterfaceError, OperationalError, connection

from orchestrator import engine
from orchestrator.tasks.lanes import StretchControl
from orchestrator.tasks.names import parse_path
from orchestrator.tasks.slots import slots_of_worker

logger = logging.getLogger(__name__)

_SLOW_DOWN_S = (0.5, 2.0)


@shared_task(name="orchestrator.run_step", bind=True, acks_late=True)
def run_step(self: Task[..., None], run_id: str, path: str, carried: Sequence[str] = ()) -> None:
    """Run the first step of ``path`` (``draft>check``, items as ``pages[3]``) and on along it.

    ``carried`` names what later messages of the same canvas bring. Never retries itself: what is
    lost here is found by a sweep. A message that finds nothing to do (a copy, a late one) ends its
    chain: else a copy would send copies of all that follows.
    """
    key, scope = parse_path(path)
    queue = (self.request.delivery_info or {}).get("routing_key") or "engine"
    order = engine.Order(run_id=UUID(run_id), key=key, scope=scope, carried=frozenset(carried))
    try:
        with slots_of_worker().held(order.run_id) as seat:
            if engine.run_step(order, StretchControl(queue, seat)) == 0:
                self.request.chain = None
    except (OperationalError, InterfaceError):
        logger.warning("run %s: the database went away at %s; a sweep goes on", run_id, path)
        connection.close()
        time.sleep(random.uniform(*_SLOW_DOWN_S))  # noqa: S311 - spreads the return


@worker_process_init.connect
def _end_hanging_bodies(**_: Any) -> None:
    """A pool child of its own may be ended when its body hangs; a thread cannot."""
    engine.keeper.may_exit = True
