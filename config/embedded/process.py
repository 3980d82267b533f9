"""One child process of ours: its own session, its own log, tied to our life."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from config.embedded.account import Account
from config.lifeline import die_with_parent


class ServerError(Exception):
    """Something that stands in the way of a server, in one sentence for a person."""


@dataclass
class Child:
    """A foreground child in a session of its own; it dies when this process dies, however.

    Start it from the main thread: the kernel ties it to the thread that made it. Its output goes
    to ``log``, appended. ``death_signal`` is what it gets when we vanish, ``stop_signals`` what
    ``stop`` sends in turn, each with the seconds that it may take; SIGKILL follows.
    """

    name: str
    argv: Sequence[str]
    log: Path
    env: Mapping[str, str] | None = None
    account: Account = field(default_factory=Account)
    death_signal: signal.Signals = signal.SIGKILL
    stop_signals: Sequence[tuple[signal.Signals, float]] = ((signal.SIGTERM, 10.0),)
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    pidfd: int = field(default=-1, init=False)
    log_start: int = field(default=0, init=False)

    def start(self) -> None:
        """Start the process; ServerError if the program cannot be executed at all."""
        parent = os.getpid()

        def before_exec() -> None:
            self.account.become()
            die_with_parent(self.death_signal, parent=parent)

        with self.log.open("ab") as log:
            self.log_start = log.tell()
            try:
                self.process = subprocess.Popen(  # noqa: S603 - our own argument list, no shell
                    list(self.argv),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=None if self.env is None else dict(self.env),
                    cwd="/" if self.account.uid is not None else None,
                    start_new_session=True,
                    preexec_fn=before_exec,
                )
            except (OSError, subprocess.SubprocessError) as error:
                raise ServerError(f"{self.name}: cannot run {self.argv[0]}: {error}.") from error
        self.pidfd = os.pidfd_open(self.process.pid)

    @property
    def pid(self) -> int:
        """The process's id; 0 before the start."""
        return self.process.pid if self.process else 0

    @property
    def alive(self) -> bool:
        """True from the start until it has ended."""
        return self.process is not None and self.process.poll() is None

    def wait(self, seconds: float) -> bool:
        """Sleep until the child ends or the time is over; True if it has ended."""
        if self.process is None:
            return True
        if self.pidfd >= 0:
            select.select([self.pidfd], [], [], seconds)
        return self.process.poll() is not None

    def request_stop(self) -> None:
        """Send the first stop signal and return."""
        self.signal(self.stop_signals[0][0])

    def signal(self, sig: signal.Signals) -> None:
        """Send a signal to the child alone; nothing if it has ended."""
        if self.process is not None:
            self.process.send_signal(sig)

    def stop(self) -> None:
        """End the child and whatever is left of its session; returns when all are gone."""
        for sig, seconds in self.stop_signals:
            if self.alive:
                self.signal(sig)
                self.wait(seconds)
        self.kill()

    def kill(self) -> None:
        """SIGKILL the whole session and reap the child."""
        if self.process is None:
            return
        # The session's id is the child's pid: still reserved while the child is not reaped or any
        # member lives, so that no stranger is hit.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1

    def last_words(self) -> str:
        """The last line that this start of the child wrote to its log; empty if none."""
        with self.log.open("rb") as log:
            log.seek(self.log_start)
            lines = log.read().decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else ""


def run(child: Child, seconds: float) -> int:
    """Run a child to its end and return its exit status; ServerError when it takes too long."""
    child.start()
    try:
        if not child.wait(seconds):
            raise ServerError(f"{child.name} took longer than {seconds:.0f} s; see {child.log}.")
        assert child.process is not None
        return child.process.returncode
    finally:
        child.kill()


def wait_for_end(pid: int, seconds: float) -> bool:
    """Wait until a process that is not our child has ended; True if it has."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([pidfd], [], [], seconds)[0])
    finally:
        os.close(pidfd)
