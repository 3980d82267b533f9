"""Sees each commit that the engine makes, and whether a drill could have died on both sides of it.

The source is read for transactions without a name (tests/architecture); statements that commit by
themselves cannot be found there, so they are caught in the act: between two commits of the engine
there must have been a crash point.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from orchestrator import crash
from orchestrator.models import direct, kept

OURS = ("/orchestrator/engine/", "/approvals_app/", "/orchestrator/tasks/")
OUTSIDE = ("/orchestrator/executors/", "/workflows_app/gallery/", "/tests/")
_WRITES = re.compile(r"\b(INSERT|UPDATE|DELETE)\b|orchestrator_(?!now)\w+\(", re.IGNORECASE)


class Witness:
    """``nameless``: where something was committed with no crash point since the commit before."""

    def __init__(self) -> None:
        self.nameless: set[str] = set()
        self.commits = 0
        self._local = threading.local()

    def hear(self, place: str) -> None:
        """The hook: this thread is at a place."""
        self._local.since = place

    def commit(self, what: str) -> None:
        """Something is about to be committed."""
        where = _ours()
        if where is None:
            return
        self.commits += 1
        if getattr(self._local, "since", None) is None:
            self.nameless.add(f"{where}: {' '.join(what.split())[:80]}")
        self._local.since = None


def _ours() -> str | None:
    """The innermost line of the engine or a face that leads here; None when it is not theirs."""
    frame = sys._getframe(3)  # beyond this module
    while frame is not None:
        file = frame.f_code.co_filename
        if any(part in file for part in OUTSIDE):
            return None  # a tool's body, or the test itself
        if any(part in file for part in OURS):
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return None


@contextmanager
def witness() -> Iterator[Witness]:
    """Watch every connection of this process for the length of the block."""
    seen = Witness()
    execute, commit = psycopg.Cursor.execute, psycopg.Connection.commit
    prepared_on, fetch_all = direct.DirectStatement._prepared_on, kept.fetch_all

    def executing(self: Any, query: Any, *more: Any, **named: Any) -> Any:
        alone = self.connection.autocommit
        if alone and self.connection.info.transaction_status is TransactionStatus.IDLE:
            text = query if isinstance(query, str) else str(query)
            if _WRITES.search(text):
                seen.commit(text)
        return execute(self, query, *more, **named)

    def committing(self: Any) -> None:
        if self.info.transaction_status is not TransactionStatus.IDLE:
            seen.commit("COMMIT")
        commit(self)

    def preparing(self: Any) -> Any:
        """Every statement past the cursor comes here first."""
        text = self._sql.decode()
        if direct.is_free() and _WRITES.search(text):
            seen.commit(text)
        return prepared_on(self)

    def fetching(sql: str, params: Any) -> Any:
        if direct.is_free() and _WRITES.search(sql):
            seen.commit(sql)
        return fetch_all(sql, params)

    psycopg.Cursor.execute, psycopg.Connection.commit = executing, committing  # type: ignore[method-assign,assignment]
    direct.DirectStatement._prepared_on = preparing  # type: ignore[method-assign]
    kept.fetch_all = fetching
    crash.set_hook(seen.hear)
    try:
        yield seen
    finally:
        crash.set_hook(None)
        psycopg.Cursor.execute, psycopg.Connection.commit = execute, commit  # type: ignore[method-assign]
        direct.DirectStatement._prepared_on = prepared_on  # type: ignore[method-assign]
        kept.fetch_all = fetch_all
