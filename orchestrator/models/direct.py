"""A hot statement sent straight through libpq: no adaptation, no cursor, one blocking call.

On two virtual cores psycopg's cursor cost the client 60 us a statement with eight values, this 27.
"""

from __future__ import annotations

import select
from collections.abc import Sequence
from typing import Any, cast
from weakref import WeakKeyDictionary

from django.db import DEFAULT_DB_ALIAS, connections
from psycopg import Connection, OperationalError, generators
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, Format

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
        value: bytes | None = self._execute(values, Format.BINARY).get_value(0, 0)
        return value

    def fetch_row(self, values: Sequence[bytes | None]) -> list[bytes | None] | None:
        """The first row, each value as text; None without one. Otherwise as ``fetch``."""
        result = self._execute(values, Format.TEXT)
        if result.ntuples == 0:
            return None
        return [result.get_value(0, n) for n in range(result.nfields)]

    def fetch_each(self, rows: Sequence[Sequence[bytes | None]]) -> list[bytes | str]:
        """The one value of each, or the SQLSTATE with which it was refused; all are sent before
        the first is waited for, and each commits by itself. Never inside a transaction.

        Raises django.db's OperationalError when the connection is lost.
        """
        with connections[DEFAULT_DB_ALIAS].wrap_database_errors:
            pgconn = self._prepared_on().pgconn
            pgconn.enter_pipeline_mode()
            for values in rows:
                pgconn.send_query_prepared(
                    self._name, cast(Any, values), self._formats, result_format=Format.BINARY
                )
                pgconn.pipeline_sync()
            found = [_next_answer(pgconn) for _ in rows]
            pgconn.exit_pipeline_mode()
        return found

    def ask(self, values: Sequence[bytes | None]) -> Asked:
        """Send it, and let the caller do something else until it wants the answer. The connection
        is good for nothing until then, so whatever happens the answer must be waited for."""
        with connections[DEFAULT_DB_ALIAS].wrap_database_errors:
            link = self._prepared_on()
            link.pgconn.send_query_prepared(
                self._name, cast(Any, values), self._formats, result_format=Format.BINARY
            )
            link.pgconn.flush()
        return Asked(link)

    def _execute(self, values: Sequence[bytes | None], format_: Format) -> Any:
        with connections[DEFAULT_DB_ALIAS].wrap_database_errors:
            pgconn = self._prepared_on().pgconn
            result = pgconn.exec_prepared(
                self._name, cast(Any, values), self._formats, result_format=format_
            )
            _check(pgconn, result)
        return result

    def _prepared_on(self) -> Connection[Any]:
        """This thread's connection, which knows the statement."""
        django = connections[DEFAULT_DB_ALIAS]
        django.ensure_connection()
        link: Connection[Any] = django.connection
        known = _prepared.setdefault(link, set())
        if self._name not in known:
            _check(link.pgconn, link.pgconn.prepare(self._name, self._sql))
            known.add(self._name)
        return link


Call = tuple[DirectStatement, Sequence[bytes | None]]
"""A statement with its values."""


def ask_together(calls: Sequence[Call]) -> AskedTogether:
    """Send several statements at once, as one transaction; see ``DirectStatement.ask``."""
    with connections[DEFAULT_DB_ALIAS].wrap_database_errors:
        link = next(reversed([statement._prepared_on() for statement, _ in calls]))  # noqa: SLF001 - the same module
        link.pgconn.enter_pipeline_mode()
        for statement, values in calls:
            link.pgconn.send_query_prepared(
                statement._name,  # noqa: SLF001
                cast(Any, values),
                statement._formats,  # noqa: SLF001
                result_format=Format.BINARY,
            )
        link.pgconn.pipeline_sync()
        link.pgconn.flush()
    return AskedTogether(link)


class Asked:
    """A statement that PostgreSQL is working on."""

    def __init__(self, link: Connection[Any]) -> None:
        self._link = link

    def answer(self) -> None:
        """Wait until it is done. Raises django.db's errors, as a cursor would."""
        with connections[DEFAULT_DB_ALIAS].wrap_database_errors:
            result: Any = self._link.wait(generators.execute(self._link.pgconn))[-1]
            _check(self._link.pgconn, result)


class AskedTogether(Asked):
    """Statements that PostgreSQL is working on in one transaction."""

    def answer(self) -> None:
        """Wait until it is committed. Raises the error of the first that failed: then all of them
        changed nothing."""
        pgconn = self._link.pgconn
        failed: Any = None
        with connections[DEFAULT_DB_ALIAS].wrap_database_errors:
            while (result := _next_result(pgconn)) is None or result.status != _SYNC:
                if pgconn.status != ConnStatus.OK:
                    raise OperationalError("the connection was lost")
                if result is not None and result.status == ExecStatus.FATAL_ERROR:
                    failed = failed or result
            pgconn.exit_pipeline_mode()
            if failed is not None:
                raise error_from_result(failed)


def _next_result(pgconn: Any) -> Any:
    """The next result of a pipeline; other threads run while this one waits."""
    while pgconn.is_busy():
        poll = select.poll()
        poll.register(pgconn.socket, select.POLLIN)
        poll.poll()
        pgconn.consume_input()
    return pgconn.get_result()


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


def _next_answer(pgconn: Any) -> bytes | str:
    """The answer to the next statement of the pipeline, read up to its end."""
    answer: bytes | str = ""
    while (result := pgconn.get_result()) is None or result.status != _SYNC:
        if pgconn.status != ConnStatus.OK:
            words = "" if result is None else result.get_error_message()
            raise OperationalError(words or "the connection was lost")
        if result is None:  # between an answer and its end
            continue
        if result.status == ExecStatus.TUPLES_OK:
            answer = result.get_value(0, 0) or b""
        else:
            answer = (result.error_field(DiagnosticField.SQLSTATE) or b"XX000").decode()
    return answer


_SYNC = ExecStatus.PIPELINE_SYNC
