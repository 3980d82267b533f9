"""A hot statement sent straight through libpq: no adaptation, no cursor, one blocking call.

On two virtual cores psycopg's cursor cost the client 60 us a statement with eight values, this 27.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast
from weakref import WeakKeyDictionary

from django.db import DEFAULT_DB_ALIAS, connections
from psycopg import Connection, OperationalError
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus, Format

_prepared: WeakKeyDictionary[Connection[Any], set[bytes]] = WeakKeyDictionary()


class DirectStatement:
    """A statement with ``$1`` places that returns one value, prepared once a connection.

    ``binary`` are the places (from 0) whose values are in the type's binary form; the others are
    text. The caller encodes; None is NULL.
    """

    def __init__(self, name: bytes, sql: bytes, *, places: int, binary: frozenset[int]) -> None:
        self._name = name
        self._sql = sql
        self._formats = [Format.BINARY if i in binary else Format.TEXT for i in range(places)]

    def fetch(self, values: Sequence[bytes | None]) -> bytes | None:
        """The one value, in binary form; autocommits, so never inside a transaction.

        Raises django.db's errors, as a cursor would.
        """
        django = connections[DEFAULT_DB_ALIAS]
        django.ensure_connection()
        with django.wrap_database_errors:
            link: Connection[Any] = django.connection
            pgconn = link.pgconn
            known = _prepared.setdefault(link, set())
            if self._name not in known:
                _check(pgconn, pgconn.prepare(self._name, self._sql))
                known.add(self._name)
            result = pgconn.exec_prepared(
                self._name, cast(Any, values), self._formats, result_format=Format.BINARY
            )
            _check(pgconn, result)
        return result.get_value(0, 0)


def is_free() -> bool:
    """Whether no transaction is open, so that a statement commits by itself."""
    django = connections[DEFAULT_DB_ALIAS]
    return not django.in_atomic_block and django.get_autocommit()


def _check(pgconn: Any, result: Any) -> None:
    if result.status in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
        return
    if pgconn.status != ConnStatus.OK:
        raise OperationalError(result.get_error_message() or "the connection was lost")
    raise error_from_result(result)
