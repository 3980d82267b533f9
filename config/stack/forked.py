"""Children that are copies of this process, with everything imported already.

Each part of the product needs the same second of imports; on a small machine seven of them at once
are most of the start. A copy begins where this process stands.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NoReturn

from config.embedded.process import Child, Process
from config.lifeline import die_with_parent

_PR_SET_NAME = 15
_LIBC = ctypes.CDLL(None)


@dataclass
class ForkedChild(Child):
    """A child that runs a function of this program. Fork from a process with one thread."""

    run: Callable[[], int | None] = lambda: None
    env: Mapping[str, str] = field(default_factory=dict)

    def _spawn(self, log: IO[bytes]) -> Process:
        assert len(list(Path("/proc/self/task").iterdir())) == 1, (
            "a copy of one thread of several may hang"
        )
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._live(parent, log)
        return ForkedProcess(pid)

    def _live(self, parent: int, log: IO[bytes]) -> NoReturn:
        """The child's whole life; never returns into the parent's frames."""
        status = 1
        try:
            self._become_own(parent, log)
            status = self.run() or 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:  # noqa: BLE001 - the last frame of a process: report and end
            traceback.print_exc()
        finally:
            with suppress(OSError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)

    def _become_own(self, parent: int, log: IO[bytes]) -> None:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        die_with_parent(self.death_signal, parent=parent)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (log.fileno(), 1), (log.fileno(), 2)):
            os.dup2(source, target)
        # Neither the lock of the data folder nor another child's handles may live on in here.
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        os.environ.update(self.env)
        sys.argv = [self.name]
        _LIBC.prctl(_PR_SET_NAME, self.name[:15].encode(), 0, 0, 0)


class ForkedProcess:
    """Popen's five words for a process that was forked."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit status, None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; TimeoutExpired when the time is over."""
        if timeout is None and self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        until = time.monotonic() + (timeout or 0)
        while self.poll() is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            time.sleep(0.02)  # only where the system has no pidfd to wait on
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, sig: int) -> None:
        """Send a signal, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, sig)
