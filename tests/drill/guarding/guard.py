"""The guards of the engine: how each is taken away, and the tests that fail without it.

A guard is taken away in a throw-away copy of the tree by replacing a text of its source, or in
the copy's database by dropping a constraint. A text that no longer occurs exactly once is an
error: whoever rewrites a guard says here how the new one is taken away.
"""

from __future__ import annotations

from dataclasses import dataclass

APPLY = "orchestrator/models/sql/apply.sql"
ADVANCE = "orchestrator/models/sql/advance.sql"
WAKE = "orchestrator/models/sql/wake.sql"


@dataclass(frozen=True, slots=True)
class Cut:
    """``old``, which stands in ``path`` exactly once, becomes ``new``."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """``what`` it does, in one sentence. Taken away by ``cuts``, or ``drop`` (SQL) in the database.

    Every one of ``tests`` (pytest names; any parameter of it) fails without the guard.
    """

    name: str
    what: str
    tests: tuple[str, ...]
    cuts: tuple[Cut, ...] = ()
    drop: str = ""
