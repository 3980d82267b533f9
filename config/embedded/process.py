"""One child process of ours: its own session, its own log, tied to our life."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

from config.embedded.account import Account
from config.lifeline import die_with_parent


class ServerError(Exception):
    """Something that stands in the way of a server, in one sentence for a person."""


class Process(Protocol):
    """What a child needs of its process; subprocess.Popen has it."""

    @property
    def pid(self) -> int:
        """The process's id."""

    @property
    def returncode(self) -> int | Any:
        """The exit status, negative for a signal; None while it runs or is not waited for."""

    def poll(self) -> int | None:
        """The exit status, None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; subprocess.TimeoutExpired when the time is over."""

    def send_signal(self, sig: int) -> None:
        """Send a signal, if it still runs."""


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
    account: Account = field(default_factory=Account)
    death_signal: signal.Signals = signal.SIGKILL
    stop_signals: Sequence[tuple[signal.Signals, float]] = ((signal.SIGTERM, 10.0),)
    process: Process | None = field(default=None, init=False)
    pidfd: int = field(default=-1, init=False)
    log_start: int = field(default=0, init=False)

    def start(self) -> None:
        """Start the process; ServerError if the program cannot be executed at all."""
        with self.log.open("ab") as log:
            self.log_start = log.tell()
            self.process = self._spawn(log)
        with contextlib.suppress(OSError):  # some sandboxes have no pidfd; wait() copes
            self.pidfd = os.pidfd_open(self.process.pid)

    def _spawn(self, log: IO[bytes]) -> Process:
        parent = os.getpid()

        def before_exec() -> None:
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            self.account.become()
            die_with_parent(self.death_signal, parent=parent)

        try:
            return subprocess.Popen(  # noqa: S603 - our own argument list, no shell
                list(self.argv),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd="/",
                start_new_session=True,
                preexec_fn=before_exec,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise ServerError(f"{self.name}: cannot run {self.argv[0]}: {error}.") from error

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
        else:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(seconds)
        return self.process.poll() is not None

    def signal(self, sig: signal.Signals) -> None:
        """Send a signal to the child alone; nothing if it has ended."""
        if self.process is not None:
            self.process.send_signal(sig)

    def stop(self) -> None:
        """End the child and whatever is left of its session; returns when all are gone."""
        stop_together([self])

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


class Server(Protocol):
    """What the embedded servers have in common."""

    @property
    def data(self) -> Path:
        """The folder that it keeps its data in."""

    @property
    def url(self) -> str:
        """Where clients find it."""

    def prepare(self) -> None:
        """Make what the start needs; ServerError when what is there cannot be used."""

    def server(self) -> Child:
        """A child for it, not started."""

    def answers(self) -> bool:
        """Ask it once; False while it does not serve yet."""

    def tidy(self) -> None:
        """After its end: remove what it needed outside the data folder."""


def _nothing() -> None:
    pass


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


def stop_together(children: Sequence[Child]) -> None:
    """End several children at the same time, each by its own signals; returns when all are gone."""
    stages = max((len(child.stop_signals) for child in children), default=0)
    for stage in range(stages):
        asked_at = time.monotonic()
        alive = [c for c in children if c.alive and stage < len(c.stop_signals)]
        for child in alive:
            child.signal(child.stop_signals[stage][0])
        for child in alive:
            child.wait(max(0.0, asked_at + child.stop_signals[stage][1] - time.monotonic()))
    for child in children:
        child.kill()


def wait_ready(
    server: Server, child: Child, *, seconds: float = 60.0, meanwhile: Callable[[], None] = _nothing
) -> None:
    """Return when the server answers; ServerError with the reason when it will not.

    ``meanwhile`` is called between the attempts and may raise to end the wait.
    """
    until = time.monotonic() + seconds
    while not child.wait(0.02):
        meanwhile()
        if server.answers():
            return
        if time.monotonic() > until:
            raise ServerError(
                f"{child.name} does not answer after {seconds:.0f} s; see {child.log}."
            )
    raise ServerError(
        f"{child.name} does not start on {server.data}: {child.last_words() or 'it says nothing'}"
        f" (the whole log is {child.log})."
    )


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
