"""SQL of tools: one fixed statement, a role of its own, bounded in time, rows and bytes.

The database is never the engine's, and the role is never one that reaches files or programs of the
server: both are looked at in each transaction before the statement. READ ONLY is a second fence,
not the first: what the role may see and do is what the statement may see and do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import DictRow, dict_row
from psycopg.types.json import Jsonb

from orchestrator.adapters.sql_text import denied_call
from orchestrator.adapters.sql_values import plain
from orchestrator.authoring import Permanent, Transient
from orchestrator.core.effects import request_hash

MAX_ROWS = 1000
MAX_BYTES = 1024 * 1024
STATEMENT_TIMEOUT_S = 5.0
CONNECT_TIMEOUT_S = 10.0
MAX_SHOWN = 300

TABLE = "orchestrator_effect"
DDL = f"""CREATE TABLE IF NOT EXISTS {TABLE} (
    tenant text NOT NULL,
    effect_key text NOT NULL,
    request_hash text NOT NULL,
    result jsonb,
    applied_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, effect_key)
)"""

_READS = frozenset({"select", "with", "values", "table"})
_WRITES = frozenset({"insert", "update", "delete", "merge", "with", "select"})
_BEFORE = re.compile(r"(?:\s|\(|--[^\n]*(?:\n|\Z)|/\*.*?\*/)*", re.DOTALL)
_ESCAPED = re.compile(r'\bU&"', re.IGNORECASE)  # would hide the name of the table of keys
_NOT_NOW = ("08", "40", "53", "55", "57", "58")  # connection, clash, resources, locks, shutdown

# A role that can become a superuser, or reach the server's files and programs, is no fence. The
# limits hold for this transaction; a statement that is already running cannot lift them for itself.
_GUARD = """
SELECT set_config('statement_timeout', %(time)s, true), set_config('lock_timeout', %(time)s, true),
       set_config('idle_in_transaction_session_timeout', %(idle)s, true),
       set_config('standard_conforming_strings', 'on', true),
       EXISTS (SELECT 1 FROM pg_class WHERE relname = 'orchestrator_run' AND relkind IN ('r', 'p'))
           AS is_engine,
       EXISTS (SELECT 1 FROM pg_roles WHERE pg_has_role(session_user, oid, 'MEMBER')
           AND (rolsuper OR rolname IN ('pg_read_server_files', 'pg_write_server_files',
                                        'pg_execute_server_program'))) AS is_mighty
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A database by its name in documents; ``dsn`` is a secret and never shown."""

    name: str
    dsn: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One statement with ``%(name)s`` places. ``timeout_s`` may shorten the five seconds."""

    text: str
    params: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float = STATEMENT_TIMEOUT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteKey:
    """The effect that a write is; unique in the target."""

    tenant: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Rows as plain JSON, and how many rows the statement touched or gave."""

    rows: list[dict[str, Any]]
    row_count: int

    def as_json(self) -> dict[str, Any]:
        """``{rows, row_count}``."""
        return {"rows": self.rows, "row_count": self.row_count}


def query(target: Target, statement: Statement) -> Result:
    """Read. ``Permanent`` for a statement that is refused or gives too much; ``Transient`` when the
    database is away, busy or too slow."""
    _require(statement.text, _READS, "sql.query")
    with _transaction(target, statement, read_only=True) as connection:
        return _read(connection, statement)


def execute(target: Target, statement: Statement, key: WriteKey) -> Result:
    """Write once: the key is inserted in the statement's own transaction, so that either both are
    there or neither; a key that is there already answers with what was stored.

    ``Transient`` without ``not_applied`` only when the commit itself got no answer.
    """
    _require(statement.text, _WRITES, "sql.execute")
    try:
        return _write(target, statement, key)
    except _NoTable:
        _create_table(target, statement)
        return _write(target, statement, key)


def find(target: Target, statement: Statement, key: WriteKey) -> Result | None:
    """What the write under ``key`` gave; None when it is not there.

    A write that is still open counts as not there: one that comes after it waits for its end.
    """
    try:
        with _transaction(target, statement, read_only=True) as connection:
            return _stored(connection, statement, key)
    except _NoTable:
        return None


class _NoTable(Exception):
    """The target has no table for effect keys yet."""


def _write(target: Target, statement: Statement, key: WriteKey) -> Result:
    with _transaction(target, statement, read_only=False) as connection:
        if not _take_key(connection, statement, key):
            stored = _stored(connection, statement, key)
            if stored is None:
                raise Transient(f"database {target.name}: the effect key moved", not_applied=True)
            return stored
        result = _change(connection, statement)
        if connection.info.transaction_status != psycopg.pq.TransactionStatus.INTRANS:
            raise Permanent("statement: it must not end the transaction")
        connection.execute(
            f"UPDATE {TABLE} SET result = %s WHERE tenant = %s AND effect_key = %s",  # noqa: S608 - a constant
            [Jsonb(result.as_json()), key.tenant, key.key],
        )
        return result


def _take_key(connection: psycopg.Connection[DictRow], statement: Statement, key: WriteKey) -> bool:
    """Insert the key; False when it is there. Waits for a transaction that is inserting it."""
    taken = connection.execute(
        f"INSERT INTO {TABLE} (tenant, effect_key, request_hash) VALUES (%s, %s, %s)"  # noqa: S608 - a constant
        " ON CONFLICT DO NOTHING",
        [key.tenant, key.key, _hash(statement)],
    )
    return taken.rowcount == 1


def _stored(
    connection: psycopg.Connection[DictRow], statement: Statement, key: WriteKey
) -> Result | None:
    row = connection.execute(
        f"SELECT request_hash, result FROM {TABLE} WHERE tenant = %s AND effect_key = %s",  # noqa: S608 - a constant
        [key.tenant, key.key],
    ).fetchone()
    if row is None:
        return None
    if row["request_hash"] != _hash(statement):
        raise Permanent(
            f"effect key {key.key!r} stands for another statement in the target: one key is one"
            " business action"
        )
    return Result(**row["result"])


def _hash(statement: Statement) -> str:
    return request_hash(statement.text, dict(statement.params))


def _create_table(target: Target, statement: Statement) -> None:
    try:
        with _transaction(target, statement, read_only=False) as connection:
            connection.execute(DDL)
    except Permanent as error:
        raise Permanent(
            f"database {target.name} has no table {TABLE}, and the role may not create it: run"
            " what `manage.py sql_effect_table` prints as the database's owner"
        ) from error


@contextmanager
def _transaction(
    target: Target, statement: Statement, *, read_only: bool
) -> Iterator[psycopg.Connection[DictRow]]:
    """A transaction of its own connection, guarded and limited; committed at the end.

    Everything that fails before the commit is rolled back, and so certainly not applied.
    """
    connection = _connect(target, statement)
    try:
        connection.read_only = read_only
        try:
            _guard(connection, target, statement)
            yield connection
        except psycopg.errors.UndefinedTable as error:
            if TABLE in _words(error):
                raise _NoTable from error
            raise _refused(target, error) from error
        except psycopg.Error as error:
            raise _refused(target, error) from error
        _commit(connection, target)
    finally:
        connection.close()  # an open transaction is rolled back with it


def _commit(connection: psycopg.Connection[DictRow], target: Target) -> None:
    try:
        connection.commit()
    except psycopg.Error as error:
        if error.sqlstate is not None and not error.sqlstate.startswith(("08", "57")):
            raise _refused(target, error) from error
        raise Transient(f"database {target.name} did not answer to the commit") from error


def _connect(target: Target, statement: Statement) -> psycopg.Connection[DictRow]:
    try:
        given = conninfo_to_dict(target.dsn)
    except psycopg.Error:
        given = {}
    if not given.get("dbname"):
        raise Permanent(  # without its cause, which shows the secret
            f"the secret of database {target.name} is no address like"
            " postgresql://role:password@host:5432/name"
        ) from None
    limit = max(1, round(min(CONNECT_TIMEOUT_S, statement.timeout_s * 2)))
    try:
        return psycopg.connect(
            target.dsn,
            row_factory=dict_row,
            connect_timeout=limit,
            application_name="orchestrator sql tool",
            keepalives_idle=5,
            keepalives_interval=2,
            keepalives_count=3,
            tcp_user_timeout=10_000,
        )
    except psycopg.Error as error:
        text = _without(str(given.get("password") or ""), _words(error))
        raise Transient(
            f"database {target.name} cannot be reached: {text}", not_applied=True
        ) from None


def _guard(connection: psycopg.Connection[DictRow], target: Target, statement: Statement) -> None:
    limit_ms = max(1, int(1000 * min(STATEMENT_TIMEOUT_S, statement.timeout_s)))
    limits = {"time": f"{limit_ms}ms", "idle": "30s"}
    found = connection.execute(_GUARD, limits).fetchone() or {}
    if found["is_engine"]:
        raise Permanent(f"database {target.name} is the engine's own: tools may not touch it")
    if found["is_mighty"]:
        raise Permanent(
            f"database {target.name}: the role is, or can become, one that reaches beyond its"
            " tables; give the tool a role with only the rights that it needs"
        )


def _read(connection: psycopg.Connection[DictRow], statement: Statement) -> Result:
    """Row by row by the extended protocol, which takes one statement only; what is too much is
    broken off on the server."""
    with connection.cursor() as cursor:
        rows = _bounded(cursor.stream(statement.text, _adapted(statement.params)))
    return Result(rows=rows, row_count=len(rows))


def _change(connection: psycopg.Connection[DictRow], statement: Statement) -> Result:
    """A statement that may give no rows, in a pipeline: that too takes one statement only."""
    with connection.pipeline() as pipeline, connection.cursor() as cursor:
        cursor.execute(statement.text, _adapted(statement.params), prepare=False)
        pipeline.sync()
        rows = [] if cursor.description is None else _bounded(cursor)
        return Result(rows=rows, row_count=max(0, cursor.rowcount))


def _bounded(found: Iterable[DictRow]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    size = 0
    for row in found:
        rows.append({name: plain(value) for name, value in row.items()})
        size += len(orjson.dumps(rows[-1]))
        if len(rows) > MAX_ROWS:
            raise Permanent(f"statement: it gives more than {MAX_ROWS:,} rows: add a limit")
        if size > MAX_BYTES:
            raise Permanent(f"statement: its rows hold more than {MAX_BYTES:,} bytes")
    return rows


def _adapted(params: Mapping[str, Any]) -> dict[str, Any]:
    """Objects go in as JSON, lists of plain values as arrays."""
    return {name: Jsonb(v) if _is_document(v) else v for name, v in params.items()}


def _is_document(value: Any) -> bool:
    if isinstance(value, list):
        return any(isinstance(each, dict | list) for each in value)
    return isinstance(value, dict)


def _require(text: str, words: frozenset[str], tool: str) -> None:
    """A statement is known by its first word; what opens, ends or leaves a transaction is none."""
    if _ESCAPED.search(text):
        raise Permanent('statement: write names as they are, not escaped as U&"…"')
    if TABLE in text.lower():
        raise Permanent(f"statement: {TABLE} is kept by {tool} alone")
    call = denied_call(text)
    if call is not None:
        raise Permanent(
            f"statement: {call} may not be called by {tool}: it leads past what the role is for"
        )
    begin = _BEFORE.match(text)
    found = re.match(r"[A-Za-z]+", text[begin.end() if begin else 0 :])
    word = found.group().lower() if found else ""
    if word not in words:
        allowed = ", ".join(sorted(each.upper() for each in words))
        raise Permanent(f"statement: {tool} takes a statement that begins with one of {allowed}")


def _refused(target: Target, error: psycopg.Error) -> Permanent | Transient:
    """A failure before the commit: nothing was applied."""
    text = f"database {target.name}: {_words(error)}"
    if isinstance(error, psycopg.errors.QueryCanceled):
        return Transient(f"database {target.name}: the statement took too long", not_applied=True)
    if error.sqlstate is None and isinstance(error, psycopg.OperationalError):
        return Transient(text, not_applied=True)
    if (error.sqlstate or "").startswith(_NOT_NOW):
        return Transient(text, not_applied=True)
    return Permanent(text)


def _words(error: psycopg.Error) -> str:
    """The server's sentence, without details, which may quote rows."""
    primary = error.diag.message_primary or str(error).partition("\n")[0]
    return " ".join(primary.split())[:MAX_SHOWN]


def _without(secret: str, text: str) -> str:
    return text.replace(secret, "***") if secret else text
