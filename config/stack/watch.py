"""One place to wait: for a signal to us, a child's end, or a child that says it is ready."""

from __future__ import annotations

import os
import select
import signal
import socket
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopRequestedError(Exception):
    """Somebody asked the stack to stop: Ctrl-C, SIGTERM, or the terminal was closed."""


class Watch:
    """Waits on events instead of sleeping. Create it in the main thread; close it at the end.

    From its creation a stop signal no longer ends the process: it makes ``pause`` raise
    StopRequestedError, once; further ones are ignored, so that an impatient second Ctrl-C cannot
    interrupt an orderly stop.
    """

    def __init__(self, address: str) -> None:
        self._notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._notices.bind("\0" + address)
        self.address = "@" + address
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self._asked = False
        self._raised = False
        for number in STOP_SIGNALS:
            signal.signal(number, self._ask)
        # Any handler will do: the signal itself wakes the pause when a child ends.
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)

    def pause(self, seconds: float) -> None:
        """Wait until something happens or the time is over; StopRequestedError on a stop signal."""
        self.check()
        ready, _, _ = select.select([self._wake_read, self._notices.fileno()], [], [], seconds)
        if self._wake_read in ready:
            os.read(self._wake_read, 4096)
        self.check()

    def check(self) -> None:
        """Raise StopRequestedError if a stop signal has come, the first time only."""
        if self._asked and not self._raised:
            self._raised = True
            raise StopRequestedError

    def announcements(self) -> set[str]:
        """The names of the processes that have said READY since the last call."""
        names: set[str] = set()
        while True:
            try:
                message = self._notices.recv(4096).decode(errors="replace")
            except BlockingIOError:
                return names
            fields = dict(line.partition("=")[::2] for line in message.splitlines())
            if fields.get("READY") == "1":
                names.add(fields.get("X_PROCESS", ""))

    def close(self) -> None:
        """Give the handles back; signals stay ignored, for the process is about to end."""
        signal.set_wakeup_fd(-1)
        self._notices.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        self._asked = True
