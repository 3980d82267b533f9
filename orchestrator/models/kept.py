"""Statements with values of any kind, parsed and planned once a connection.

psycopg would do it, but not as Django opens its connections (it sets no threshold, with which
nothing is ever prepared); and what psycopg has prepared it makes the server forget at each
rollback, together with what others prepared. Nothing of that is needed: PostgreSQL keeps a
statement beyond a rollback, and plans it anew when a table has changed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

from django.db import connection as django
from psycopg import Connection, OperationalError
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import FeatureNotSupported, error_from_result
from psycopg.pq import ConnStatus, ExecStatus, TransactionStatus

_known: WeakKeyDictionary[Connection[Any], set[bytes]] = WeakKeyDictionary()
_PLACE = re.compile("%[s%]")


def fetch_all(sql: str, params: Sequence[Any]) -> list[tuple[Any, ...]]:
    """The rows of a statement with ``%s`` places; joins the open transaction, else commits by
    itself. Raises django.db's errors, as a cursor would."""
    django.ensure_connection()
    with django.wrap_database_errors:
        link: Connection[Any] = django.connection
        tx = Transformer.from_context(link)
        values: Any = tx.dump_sequence(params, [PyFormat.AUTO] * len(params))
        pgconn = link.pgconn
        if not link.autocommit and pgconn.transaction_status == TransactionStatus.IDLE:
            _check(link, pgconn.exec_(b"BEGIN"))
        name = _prepared(link, sql, tx.types or ())
        result = pgconn.exec_prepared(name, values, tx.formats)
        _check(link, result)
        tx.set_pgresult(result)
        return tx.load_rows(0, result.ntuples, tuple)


def _prepared(link: Connection[Any], sql: str, types: tuple[int, ...]) -> bytes:
    """The statement's name on this connection, for values of these types."""
    name = _name_of(sql, types)
    known = _known.setdefault(link, set())
    if name not in known:
        _check(link, link.pgconn.prepare(name, _numbered(sql), types))
        known.add(name)
    return name


_numbers = count()


@cache
def _name_of(sql: str, types: tuple[int, ...]) -> bytes:
    del sql, types
    return b"kept_%d" % next(_numbers)


@cache
def _numbered(sql: str) -> bytes:
    """The statement with PostgreSQL's own places: ``$1``, ``$2`` …"""
    places = count(1)
    return _PLACE.sub(lambda m: "%" if m[0] == "%%" else f"${next(places)}", sql).encode()


def _check(link: Connection[Any], result: Any) -> None:
    if result.status in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
        return
    if link.pgconn.status != ConnStatus.OK:
        raise OperationalError(result.get_error_message() or "the connection was lost")
    error = error_from_result(result)
    if isinstance(error, FeatureNotSupported):  # a migration changed the type of a column
        raise OperationalError(f"{error}: this connection has to be made anew") from error
    raise error
