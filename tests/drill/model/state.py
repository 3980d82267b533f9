"""What the world is made of; every part can be hashed and compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Row(NamedTuple):
    """The step's row beside the compact state."""

    fence: int = 0
    n_lost: int = 0
    n_retries: int = 0


class Effect(NamedTuple):
    """The effect's row: what is known, and the attempt that holds it. Empty: there is none."""

    status: str = ""
    holder: int = -1
    fence: int = -1


class Worker(NamedTuple):
    """An attempt in a worker's hands. ``said``: what the outside has answered so far."""

    step: int
    fence: int
    course: str
    said: tuple[str, ...] = ()
    begun: bool = False
    stopped: bool = False
    stale: bool = False


class Left(NamedTuple):
    """What may still go wrong, so many times each."""

    doubles: int
    losses: int
    crashes: int
    stops: int
    faults: int
    cancels: int


class World(NamedTuple):
    """One state. ``snapshot`` is the run's compact state as stored; ``mail`` counts the messages
    under way for each step; ``done`` is the provider's own ledger; ``open_send``: something was
    sent and nobody has learned yet what became of it. ``broken`` names a property that failed."""

    snapshot: bytes
    run: str
    waiting: str
    rows: tuple[Row, ...]
    effect: Effect
    done: int
    open_send: bool
    workers: tuple[Worker | None, ...]
    mail: tuple[int, ...]
    left: Left
    broken: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    """The guards that are in place; each mutant lacks one."""

    fence: bool = True
    intent: bool = True
    no_blind_retry: bool = True
    receipt_check: bool = True
    ready_sweep: bool = True
    lease_sweep: bool = True
    terminal_is_final: bool = True


TERMINAL = frozenset({"completed", "failed", "cancelled", "timed_out"})
