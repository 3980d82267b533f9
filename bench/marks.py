"""When bodies ran: one line of 32 bytes each, appended by every worker process to one file.

Both sides write the same way, on one host's monotonic clock, so that their times compare.
"""

from __future__ import annotations

import os
import random
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

FILE_VARIABLE = "BENCH_MARKS"
PATIENCE_S = 60.0
_LINE = struct.Struct("<16sqq")
_handles: dict[int, int] = {}


class Body(NamedTuple):
    """One body, in nanoseconds of the monotonic clock."""

    began: int
    ended: int


def mark(key: str, began: int) -> None:
    """Note that a body of the run ``key`` (a UUID) ran from ``began`` until now."""
    ended = time.monotonic_ns()
    handle = _handles.get(os.getpid())
    if handle is None:
        path = os.environ[FILE_VARIABLE]
        handle = _handles[os.getpid()] = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, _LINE.pack(bytes.fromhex(key.replace("-", "")), began, ended))


def second_half(key: str) -> str:
    """The key that marks a run's bodies behind its pause."""
    return f"{int(key.replace('-', ''), 16) ^ 1:032x}"


def random_length() -> float:
    """Seconds of a step: 3 ms on average, few of them much longer."""
    return min(random.expovariate(1 / 0.003), 0.03)


@dataclass(slots=True)
class Marks:
    """The reader of the file. ``skip`` forgets what was written so far."""

    path: Path
    _from: int = field(default=0)

    def skip(self) -> None:
        """What comes from now on is counted."""
        self._from = self._size()

    def await_bodies(self, count: int, *, every: float = 0.001) -> None:
        """Return when ``count`` bodies have ended since ``skip``.

        TimeoutError when none has ended for a minute: a busy machine is slow, a lost message late.
        """
        last, until = 0, time.monotonic() + PATIENCE_S
        while (done := self.count()) < count:
            if done > last:
                last, until = done, time.monotonic() + PATIENCE_S
            if time.monotonic() > until:
                raise TimeoutError(
                    f"{done} of {count} bodies ran, then none for {PATIENCE_S:.0f} s"
                )
            time.sleep(every)

    def count(self) -> int:
        """How many bodies have ended since ``skip``."""
        return (self._size() - self._from) // _LINE.size

    def by_run(self) -> dict[str, list[Body]]:
        """The bodies since ``skip`` of each run, in the order in which they began."""
        runs: dict[str, list[Body]] = {}
        with self.path.open("rb") as file:
            file.seek(self._from)
            data = file.read()
        for key, began, ended in _LINE.iter_unpack(data[: len(data) // _LINE.size * _LINE.size]):
            runs.setdefault(key.hex(), []).append(Body(began, ended))
        for bodies in runs.values():
            bodies.sort()
        return runs

    def _size(self) -> int:
        return self.path.stat().st_size


def wait_until(holds: Callable[[], bool], what: str, *, every: float = 0.001) -> None:
    """Poll until it holds; TimeoutError naming ``what`` when it takes too long."""
    until = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > until:
            raise TimeoutError(f"waited {PATIENCE_S:.0f} s for {what}")
        time.sleep(every)
