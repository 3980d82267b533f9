"""Keeping the leases of this process alive, and ending the process when a body hangs.

One thread a process renews what is registered, independent of the bodies. When a body is over its
time limit by ``GRACE_S``, the step has been fenced long since (its lease ended with its time);
the process is ended so that the hanging code cannot go on (DESIGN section 4, Pools).
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from django.db import DatabaseError, connection

from orchestrator.conf import engine_settings
from orchestrator.models import step_moves

logger = logging.getLogger(__name__)

GRACE_S = 5.0
LOOK_S = 0.1
"""How often the thread looks whether a lane is stuck in one body with others in hand."""
_NEVER = float("inf")


class Stuck(Protocol):
    """What a lane has in hand."""

    def give_back_if_stuck(self) -> None:
        """Give back what has not begun, when a body takes too long."""
        ...


@dataclass(slots=True)
class _Held:
    """``over_at``: when the body's time is over; ``since``: our own clock's (monotonic) reading
    just before the statement that gave us the lease, or renewed it last."""

    fence: int
    over_at: float
    since: float


class _Holding:
    """The block in which a body runs; a class, for a generator costs each step some 3 us more."""

    __slots__ = ("_held", "_keeper", "_step_id")

    def __init__(self, keeper: LeaseKeeper, step_id: UUID, held: _Held) -> None:
        self._keeper, self._step_id, self._held = keeper, step_id, held

    def __enter__(self) -> None:
        self._keeper.hold(self._step_id, self._held)

    def __exit__(self, *_: object) -> None:
        self._keeper.let_go(self._step_id)


class LeaseKeeper:
    """The leases that the threads of this process hold. ``may_exit``: end it when a body hangs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[UUID, _Held] = {}
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._pid = 0
        self._hands: set[Stuck] = set()
        self._last_hand_at = -_NEVER
        self.may_exit = False

    def holding(self, step_id: UUID, fence: int, *, timeout_s: float, since: float) -> _Holding:
        """Keep the lease for as long as the block (the body) runs. ``since``: ``time.monotonic()``
        just before the claim was asked for."""
        self._ensure_thread()
        return _Holding(self, step_id, _Held(fence, time.monotonic() + timeout_s, since))

    def hold(self, step_id: UUID, held: _Held) -> None:
        """Keep this lease from now on."""
        with self._lock:
            self._held[step_id] = held

    def let_go(self, step_id: UUID) -> None:
        """Keep it no more."""
        with self._lock:
            self._held.pop(step_id, None)

    @contextmanager
    def holding_many(
        self, held: Sequence[tuple[UUID, int]], hand: Stuck, *, since: float
    ) -> Iterator[None]:
        """Keep the leases ``(step id, fence)`` of all that one lane has in hand, and look after the
        ``hand``. Their time limits count from ``begins`` on."""
        self._ensure_thread()
        with self._lock:
            self._held.update({i: _Held(fence, _NEVER, since) for i, fence in held})
            self._hands.add(hand)
            slept = time.monotonic() - self._last_hand_at > self._interval
            self._last_hand_at = time.monotonic()
        if slept:
            self._wake.set()
        try:
            yield
        finally:
            self.drop([step_id for step_id, _ in held])
            with self._lock:
                self._hands.discard(hand)

    def begins(self, step_id: UUID, timeout_s: float) -> None:
        """The body of one of them begins."""
        with self._lock:
            if step_id in self._held:
                self._held[step_id].over_at = time.monotonic() + timeout_s

    def ended(self, step_id: UUID) -> None:
        """It is over, and not settled yet."""
        with self._lock:
            if step_id in self._held:
                self._held[step_id].over_at = _NEVER

    def drop(self, step_ids: Iterable[UUID]) -> None:
        """Not ours to keep any more."""
        with self._lock:
            for step_id in step_ids:
                self._held.pop(step_id, None)

    def is_ours(self, step_id: UUID) -> bool:
        """Whether the lease cannot be over yet, by our own clock alone: a process that stood still
        must not begin what somebody else may have been given meanwhile."""
        with self._lock:
            held = self._held.get(step_id)
        lease_s = engine_settings().lease.total_seconds()
        return held is not None and time.monotonic() - held.since < lease_s

    def _ensure_thread(self) -> None:
        if self._pid == os.getpid() and self._thread is not None and self._thread.is_alive():
            return
        with self._lock:
            if self._pid != os.getpid():  # forked: the parent's thread and leases are not ours
                self._held, self._hands = {}, set()
                self._pid = os.getpid()
            self._thread = threading.Thread(target=self._run, name="leases", daemon=True)
            self._thread.start()

    @property
    def _interval(self) -> float:
        return engine_settings().renew_every.total_seconds()

    def _run(self) -> None:
        renewed_at = time.monotonic()
        while True:
            is_busy = self._hands or time.monotonic() - self._last_hand_at < self._interval
            self._wake.wait(LOOK_S if is_busy else self._interval)
            self._wake.clear()
            with self._lock:
                hands = list(self._hands)
            for hand in hands:
                hand.give_back_if_stuck()
            if time.monotonic() - renewed_at >= self._interval:
                renewed_at = time.monotonic()
                self.renew_once()

    def renew_once(self) -> None:
        """Renew everything held; a database that is away is tried again next time."""
        with self._lock:
            held = dict(self._held)
        self._end_hanging(held)
        if not held:
            return
        asked_at = time.monotonic()
        wanted = [(step_id, one.fence) for step_id, one in held.items()]
        try:
            renewed = step_moves.renew_leases(wanted, engine_settings().lease)
        except DatabaseError:
            logger.warning("leases could not be renewed; trying again", exc_info=True)
            connection.close()
            return
        for step_id in renewed:
            held[step_id].since = asked_at

    def _end_hanging(self, held: dict[UUID, _Held]) -> None:
        now = time.monotonic()
        for step_id, one in held.items():
            if self.may_exit and now > one.over_at + GRACE_S:
                logger.error("step %s hangs beyond its time limit: ending this process", step_id)
                os.kill(os.getpid(), signal.SIGKILL)


keeper = LeaseKeeper()
