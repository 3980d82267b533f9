"""Which runs hold the slots of this worker, so that one run does not keep them all.

A worker's slots are its pool's children, or its threads. Each writes the run it goes along into
memory that all of them share, and reads what the others wrote; nothing is locked, since a reading
that is a moment old does no harm. Half of every worker's slots is half of the queue's.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from billiard.process import current_process
from celery.signals import worker_init, worker_process_init

_WIDTH = 16
_FREE = bytes(_WIDTH)


class Slots:
    """The slots of one worker. Make it before the pool's children are forked."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._shared = mmap.mmap(-1, max(count, 1) * _WIDTH)
        self._lock = threading.Lock()
        self._idle = list(range(count))

    def narrow(self, index: int) -> None:
        """This process is one slot of the worker from now on; call in a pool's child."""
        self._idle = [index] if index < self.count else []
        if self._idle:
            self._write(index, _FREE)  # a child that was killed here could not

    @contextmanager
    def held(self, run_id: UUID) -> Iterator[Seat | None]:
        """A slot goes along the run for the length of the block; None: there is none to tell."""
        with self._lock:
            index = self._idle.pop() if self._idle else None
        if index is None:
            yield None
            return
        self._write(index, run_id.bytes)
        try:
            yield Seat(self, index, run_id)
        finally:
            self._write(index, _FREE)
            with self._lock:
                self._idle.append(index)

    def rank(self, index: int, run_id: UUID) -> int:
        """How many slots before this one go along the same run."""
        at = (self._shared[i * _WIDTH : (i + 1) * _WIDTH] for i in range(index))
        return sum(held == run_id.bytes for held in at)

    def _write(self, index: int, run: bytes) -> None:
        self._shared[index * _WIDTH : (index + 1) * _WIDTH] = run


class Seat:
    """The slot that a lane holds."""

    def __init__(self, slots: Slots, index: int, run_id: UUID) -> None:
        self._slots, self._index, self._run_id = slots, index, run_id

    def is_beyond_half(self) -> bool:
        """Whether lanes before this one hold the half of the slots that one run may keep while
        others wait. One lane is always within it."""
        return self._slots.rank(self._index, self._run_id) >= max(self._slots.count // 2, 1)


class _Worker:
    slots = Slots(0)


def slots_of_worker() -> Slots:
    """Those of the worker that this process belongs to; none outside of one."""
    return _Worker.slots


@worker_init.connect
def _count_slots(sender: Any, **_: Any) -> None:
    """Before the pool starts; Celery's own setting decides how many there are."""
    _Worker.slots = Slots(sender.concurrency if isinstance(sender.concurrency, int) else 0)


@worker_process_init.connect
def _be_one_slot(**_: Any) -> None:
    """A pool's child knows its number."""
    index = getattr(current_process(), "index", None)
    if index is not None:
        _Worker.slots.narrow(index)
