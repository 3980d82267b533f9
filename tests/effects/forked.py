"""A worker that is a process of its own, so that it can die as workers do."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import NoReturn

from django.db import connections


def dies(work: Callable[[], object]) -> None:
    """Run ``work`` in a forked child, which must end itself by SIGKILL while at it."""
    connections.close_all()  # child and parent must not share one
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), f"the child ended by itself: {status}"
    assert os.WTERMSIG(status) == signal.SIGKILL


def die() -> NoReturn:
    """End this process as the kernel does it: nothing is cleaned up."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")
