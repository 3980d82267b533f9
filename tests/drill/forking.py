"""Work in forked children of a warmed process: 5 ms each, and free to die."""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from django.db import connections

from orchestrator.engine import keeper


@dataclass(eq=False)
class Child:
    """A forked process, and the pipe through which it says what came out."""

    pid: int
    pipe: int
    stopped: bool = False

    def stops(self) -> bool:
        """Return when it stands still (True) or is over (False)."""
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        self.stopped = os.WIFSTOPPED(status)
        if not self.stopped:
            self._status = status
        return self.stopped

    def goes_on(self) -> None:
        """Wake it."""
        self.stopped = False
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """kill -9, without waiting."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def ended(self) -> bool:
        """Whether it is over, without waiting."""
        if hasattr(self, "_status"):
            return True
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            self._status = status
        return pid != 0

    def result(self) -> Any:
        """What its body returned; ``Died`` when it was killed, ``ChildFailed`` when it raised."""
        chunks = []
        while chunk := os.read(self.pipe, 65536):
            chunks.append(chunk)
        os.close(self.pipe)
        if not hasattr(self, "_status"):
            _, self._status = os.waitpid(self.pid, 0)
        if os.WIFSIGNALED(self._status):
            raise Died(os.WTERMSIG(self._status))
        said = json.loads(b"".join(chunks))
        if "error" in said:
            raise ChildFailed(said["error"])
        return said["result"]


class Died(Exception):
    """The child was killed by this signal."""


class ChildFailed(Exception):
    """The child's body raised; with its traceback."""


def fork(body: Callable[[], Any]) -> Child:
    """Run ``body`` in a child; its JSON result comes back through ``Child.result``.

    No connection crosses: the parent's are closed, and the child opens its own.
    """
    connections.close_all()
    gc.freeze()  # pages stay shared: no collection in a child touches what is older than it
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return Child(pid, reading)
    os.close(reading)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    keeper.__init__()  # type: ignore[misc] # the parent's thread is not here, nor its lock
    try:
        said: dict[str, Any] = {"result": body()}
    except BaseException:  # noqa: BLE001 - whatever it is, the parent is told
        said = {"error": traceback.format_exc()}
    with suppress(BrokenPipeError):
        data = json.dumps(said, default=str).encode()
        while data:
            data = data[os.write(writing, data) :]
    os._exit(0)
