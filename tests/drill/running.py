"""Drills side by side, each in a process of its own, with what is going on told meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import orjson

from config.env import BASE_DIR
from tests.drill.line import MINUTES, Line, Size

QUIET_S = 15.0  # without a terminal, so often a line says what is running
PAUSE_S = 0.2


@dataclass(frozen=True)
class Entry:
    """A drill of the list: its name, ``package.module:function``, and how it is to be run.

    ``alone``: it measures time, so nothing else may run beside it. ``limit_s``: of a short one;
    then it is ended, which is a broken promise. A long one may take LONG's minutes more.
    """

    name: str
    where: str
    sizes: tuple[Size, ...] = (Size.SHORT, Size.LONG)
    alone: bool = False
    limit_s: float = 300.0


@dataclass
class Running:
    """A drill under way, or over."""

    entry: Entry
    folder: Path
    process: subprocess.Popen[bytes]
    log: IO[bytes]
    limit_s: float
    began: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    lines: list[Line] = field(default_factory=list)

    @property
    def file(self) -> Path:
        """Where it leaves its lines."""
        return self.folder / "lines.jsonl"

    def age(self) -> float:
        """Seconds since its start."""
        return time.monotonic() - self.began

    def finish(self) -> None:
        """Read what it said; a drill that said nothing, or was ended, has broken its promise."""
        self.seconds = self.age()
        self.log.close()
        if self.file.exists():
            said = self.file.read_bytes().splitlines()
            self.lines = [Line.from_json(orjson.loads(text)) for text in said]
        log = self.folder / "log"
        if self.process.returncode and all(line.held for line in self.lines):
            how = f"ended with status {self.process.returncode} after {self.seconds:.0f} s"
            tail = log.read_text(errors="replace")[-1500:]
            self.lines.append(Line("-", self.entry.name, 1, {}, [f"{how}; {log}\n{tail}"]))
        elif not self.lines:
            self.lines.append(Line("-", self.entry.name, 0, {}, [f"it said nothing; {log}"]))

    def stop(self) -> None:
        """End it and all that it started: politely, then not."""
        for number, seconds in ((signal.SIGUSR1, 0.5), (signal.SIGTERM, 20.0), (signal.SIGKILL, 5)):
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number) if number == signal.SIGKILL else (
                    self.process.send_signal(number)
                )
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(seconds)
                return


class Round:
    """All wanted drills of one size, at most ``jobs`` at a time; measuring ones one by one."""

    def __init__(
        self, entries: Sequence[Entry], *, size: Size, seed: int, jobs: int, minutes: float
    ) -> None:
        self.waiting = sorted(entries, key=lambda entry: entry.alone)  # the slow ones overlap
        self.size, self.seed, self.jobs, self.minutes = size, seed, jobs, minutes
        self.folder = Path(tempfile.mkdtemp(prefix="drill-"))
        self.running: list[Running] = []
        self.over: list[Running] = []
        self._all = len(entries)
        self._began = self._said_at = time.monotonic()
        self._live = sys.stderr.isatty()

    def run(self) -> list[Running]:
        """Run them all and return them, in the order in which they ended."""
        try:
            while self.waiting or self.running:
                while self.waiting and self._may_start(self.waiting[0]):
                    self.running.append(self._start(self.waiting.pop(0)))
                self._reap()
                self._tell_progress()
                time.sleep(PAUSE_S)  # several processes end, or somebody presses Ctrl-C
        finally:
            for one in self.running:
                one.stop()
        return self.over

    def _may_start(self, entry: Entry) -> bool:
        if entry.alone or any(one.entry.alone for one in self.running):
            return not self.running
        return len(self.running) < self.jobs

    def _start(self, entry: Entry) -> Running:
        folder = self.folder / entry.name
        folder.mkdir()
        log = (folder / "log").open("ab")
        file = str(folder / "lines.jsonl")
        command = [sys.executable, "-m", "tests.drill.child", entry.where, self.size]
        process = subprocess.Popen(
            [*command, str(self.seed), file],
            cwd=BASE_DIR,
            env=self._environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        more = self.minutes * 60 if self.size is Size.LONG else 0
        self._say(f"started {entry.name}")
        return Running(entry, folder, process, log, entry.limit_s + more)

    def _environment(self, folder: Path) -> dict[str, str]:
        """Its servers are its own: those of a session around it are not for hurting."""
        theirs = ("DATABASE_URL", "BROKER_URL", "PYTEST_XDIST_WORKER")
        environment = {name: value for name, value in os.environ.items() if name not in theirs}
        temporary = folder / "tmp"
        temporary.mkdir()
        return environment | {
            "DJANGO_SETTINGS_MODULE": "config.settings.test",
            "DATA_DIR": str(folder / "data"),
            "TMPDIR": str(temporary),
            MINUTES: str(self.minutes),
        }

    def _reap(self) -> None:
        for one in list(self.running):
            if one.process.poll() is None:
                if one.age() < one.limit_s:
                    continue
                one.stop()
            one.finish()
            self.running.remove(one)
            self.over.append(one)
            bad = sum(not line.held for line in one.lines)
            words = f"{bad} of {len(one.lines)} lines NOT as promised" if bad else "held"
            self._say(f"ended   {one.entry.name}: {words}, {one.seconds:.0f} s")

    def _say(self, words: str) -> None:
        if self._live:
            sys.stderr.write("\r\x1b[K")
        print(f"{time.monotonic() - self._began:6.0f} s  {words}", file=sys.stderr, flush=True)
        self._said_at = time.monotonic()

    def _tell_progress(self) -> None:
        going = ", ".join(f"{one.entry.name} {one.age():.0f} s" for one in self.running)
        words = f"{len(self.over)} of {self._all} over; running: {going or 'none'}"
        if self._live:
            sys.stderr.write(f"\r\x1b[K{time.monotonic() - self._began:6.0f} s  {words}")
            sys.stderr.flush()
        elif time.monotonic() - self._said_at > QUIET_S:
            self._say(words)
