"""Named places where a drill may end, stop or count this process; in production nothing happens.

They stand on both sides of each commit and of each call to the outside. A transaction is a
``Unit``, which has two of them; a statement that commits by itself stands ``between`` two. The
cost without a drill is one look at a module's name.

``ORCHESTRATOR_CRASH_AT=name[:n]`` makes the n-th arrival at a place fatal, as by SIGKILL.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import TracebackType

from django.db import DEFAULT_DB_ALIAS
from django.db.transaction import Atomic

Hook = Callable[[str], None]


class _Drill:
    hook: Hook | None = None


def set_hook(hook: Hook | None) -> None:
    """From now on ``hook`` hears of each place that this process arrives at; it must not raise."""
    _Drill.hook = hook


def crash_point(name: str) -> None:
    """A place; the word after the colon says on which side of the act it lies."""
    if _Drill.hook is not None:
        _Drill.hook(name)


class Unit(Atomic):
    """One transaction with a name: places ``name:written`` (all is said, nothing committed) and
    ``name:committed``. Inside another transaction it is a part of that one, as ``atomic`` is.

    Also a decorator. Every transaction that the engine or a face opens is one of these: a test
    reads the source for others.
    """

    def __init__(self, name: str, *, savepoint: bool = True) -> None:
        super().__init__(DEFAULT_DB_ALIAS, savepoint, durable=False)
        self.name = name

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        hook = _Drill.hook if exc_type is None else None
        if hook is not None:
            hook(f"{self.name}:written")
        super().__exit__(exc_type, exc_value, traceback)
        if hook is not None:
            hook(f"{self.name}:committed")


def _die_at(wanted: str) -> Hook:
    name, _, count = wanted.rpartition(":")
    target, left = (name, [int(count)]) if count.isdigit() and name else (wanted, [1])

    def die(place: str) -> None:
        if place == target:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return die


if os.environ.get("ORCHESTRATOR_CRASH_AT"):
    set_hook(_die_at(os.environ["ORCHESTRATOR_CRASH_AT"]))
