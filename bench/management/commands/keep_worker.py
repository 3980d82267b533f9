"""``manage.py keep_worker``: a worker of the tool queue that is started again when it dies."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand

from config.env import QUEUE_TYPES
from config.stack import parts
from config.stack.forked import ForkedChild
from config.stack.preload import preload

_A_DAY_S = 86_400.0


class Command(BaseCommand):
    """What the stack does for its workers, for one that the bench kills."""

    help = "Keeps one more worker of the tool queue up until a signal."

    def handle(self, *_: Any, **__: Any) -> None:
        """Start it again, for ever."""
        preload()
        like = next(group for group in parts.WORKER_GROUPS if "tool" in group.types)
        part = parts.worker(parts.WorkerGroup("kept", like.types, like.options), QUEUE_TYPES)
        log = Path(os.environ["DATA_DIR"]) / "logs" / "worker-kept-self.log"
        while True:
            child = ForkedChild(name="worker-kept", argv=(), log=log, run=part.run)
            child.start()
            child.wait(_A_DAY_S)
            child.kill()
