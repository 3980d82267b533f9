"""Standing runs by the million: copies of one that the engine made, written by COPY.

A real run is brought to its wait by the engine. Its rows in every table are then read as text, and
written again with other ids: so a copy has the engine's own columns, nulls and state bytes, and can
be decided, fired, read and checked like any other.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db import OperationalError, connection

CHUNK = 5_000
A_MS = 300
"""Copies that are born in one millisecond: what ids look like under load."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table with rows of a run. ``made``: columns that the database fills by itself."""

    name: str
    of_run: str
    made: tuple[str, ...] = ()
    due: str = ""


_REQUESTS = "request_id IN (SELECT id FROM approvals_app_request WHERE run_id = %s)"
TABLES = (
    Table("orchestrator_run", "id = %s"),
    Table("orchestrator_step", "run_id = %s"),
    Table("orchestrator_timer", "run_id = %s", made=("id",), due="fire_at"),
    Table("orchestrator_event", "run_id = %s", made=("id", "xid")),
    Table("approvals_app_request", "run_id = %s", due="due_at"),
    Table("approvals_app_assignment", _REQUESTS, made=("id",)),
)
"""Every table with rows of a waiting run, referenced ones first."""
_TRIES = 5
_OF_RUNS = (
    *(table.name for table in TABLES),
    *("orchestrator_outbox", "orchestrator_effect", "orchestrator_signal"),
)
_STATE = ("orchestrator_run", "orchestrator_step", "orchestrator_timer")
_DUE = "@due@"
_PLACE = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|" + _DUE)


@dataclass(frozen=True, slots=True)
class Template:
    """The rows of one run in one table, as COPY writes them, with a place for each id."""

    table: str
    columns: tuple[str, ...]
    pattern: str
    ids: tuple[int, ...]
    has_due: bool


@dataclass(frozen=True, slots=True)
class Mould:
    """What copies of a run are cast from. ``n_ids``: how many ids a copy needs, the run's first."""

    run_id: UUID
    n_ids: int
    templates: tuple[Template, ...]
    n_events: int


def take_mould(run_id: UUID) -> Mould:
    """Read a run of the engine's."""
    texts = [(table, _columns(table), _read(table, run_id)) for table in TABLES]
    ids = [str(run_id)]
    for table, columns, text in texts:
        if "id" in columns and table.name != "orchestrator_run":
            place = columns.index("id")
            ids += [line.split("\t")[place] for line in text.splitlines()]
    templates = tuple(
        _template(table, columns, text, ids) for table, columns, text in texts if text
    )
    events = next(text for table, _, text in texts if table.name == "orchestrator_event")
    return Mould(run_id, len(ids), templates, len(events.splitlines()))


def _columns(table: Table) -> tuple[str, ...]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
            " AND NOT attisdropped AND attgenerated = '' ORDER BY attnum",
            [table.name],
        )
        return tuple(name for (name,) in cursor.fetchall() if name not in table.made)


def _read(table: Table, run_id: UUID) -> str:
    chosen = ", ".join(_columns(table))
    where = table.of_run.replace("%s", f"'{run_id}'")
    with connection.cursor() as cursor:
        query = f"COPY (SELECT {chosen} FROM {table.name} WHERE {where}) TO STDOUT"
        with cursor.copy(query) as copy:
            return b"".join(bytes(part) for part in copy).decode()


def _template(table: Table, columns: tuple[str, ...], text: str, ids: list[str]) -> Template:
    """The rows with a place for each id of the run's, and for the due time (-1)."""
    places: list[int] = []

    def place(found: re.Match[str]) -> str:
        if found[0] != _DUE and found[0] not in ids:
            return found[0]
        places.append(-1 if found[0] == _DUE else ids.index(found[0]))
        return "%s"

    if table.due:
        at = columns.index(table.due)
        lines = [line.split("\t") for line in text.splitlines()]
        text = "".join("\t".join([*w[:at], _DUE, *w[at + 1 :]]) + "\n" for w in lines)
    pattern = _PLACE.sub(place, text.replace("%", "%%"))
    return Template(table.name, columns, pattern, tuple(places), has_due=bool(table.due))


def cast(
    mould: Mould, count: int, *, due: Callable[[int], datetime] | None = None, first: int = 0
) -> float:
    """Write ``count`` copies; seconds. ``due`` of the n-th (default: a day on, spread over an
    hour). ``first`` numbers them, so that two calls make no id twice."""
    began = time.monotonic()
    at = due or _in_a_day()
    groups = [
        [t for t in mould.templates if (t.table in _STATE) is wanted] for wanted in (True, False)
    ]
    failures: list[BaseException] = []
    threads = [
        threading.Thread(target=_write, args=(group, mould, count, at, first, failures))
        for group in groups
        if group
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return time.monotonic() - began


def _in_a_day() -> Callable[[int], datetime]:
    begin = datetime.now(UTC) + timedelta(days=1)
    return lambda number: begin + timedelta(microseconds=3_600 * (number % 1_000_000))


def _write(
    group: Sequence[Template],
    mould: Mould,
    count: int,
    due: Callable[[int], datetime],
    first: int,
    failures: list[BaseException],
) -> None:
    """One connection, one chunk of copies after the other, table by table."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SET session_replication_role = replica")  # no look at each parent
            for begin in range(first, first + count, CHUNK):
                numbers = range(begin, min(begin + CHUNK, first + count))
                made = list(_ids(mould, numbers))
                for template in group:
                    text = _lines(template, made, [due(n) for n in numbers])
                    named = f"COPY {template.table} ({', '.join(template.columns)}) FROM STDIN"
                    with cursor.copy(named) as copy:
                        copy.write(text)
    except BaseException as error:  # noqa: BLE001 - raised again by the caller's thread
        failures.append(error)
    finally:
        connection.close()


def _lines(template: Template, made: Sequence[Sequence[str]], dues: Sequence[datetime]) -> str:
    pattern, ids = template.pattern, template.ids
    if not template.has_due:
        return "".join([pattern % tuple([one[i] for i in ids]) for one in made])
    shown = [due.isoformat() for due in dues]
    return "".join(
        [
            pattern % tuple([at if i < 0 else one[i] for i in ids])
            for one, at in zip(made, shown, strict=True)
        ]
    )


_SALT = int.from_bytes(os.urandom(4))


def _ids(mould: Mould, numbers: Sequence[int]) -> Iterator[list[str]]:
    """UUIDv7s in order, as if the copies had been born one after the other before the mould."""
    begin = (mould.run_id.int >> 80) - 3_600_000
    for number in numbers:
        ms = f"{begin + number // A_MS:012x}"
        head = f"{ms[:8]}-{ms[8:]}-7{number % A_MS:03x}-8"
        yield [f"{head}{n:03x}-{_SALT:08x}{n:04x}" for n in range(mould.n_ids)]


def settle_down() -> None:
    """As after a quiet night: statistics known, dead rows gone, pages written."""
    with connection.cursor() as cursor:
        for table in TABLES:
            cursor.execute(f"VACUUM (ANALYZE) {table.name}")
        cursor.execute("CHECKPOINT")


def clear() -> None:
    """No run is left, of the engine's or copied; blueprints stay."""
    for _ in range(_TRIES - 1):
        with suppress(OperationalError):  # a sweep read two of the tables in another order
            return _truncate()
    return _truncate()


def _truncate() -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {', '.join(_OF_RUNS)} CASCADE")


def total_bytes() -> int:
    """All tables with their indexes and TOAST."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c"
            " JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE c.relkind IN ('r', 'm') AND n.nspname = 'public'"
        )
        size: int = cursor.fetchone()[0]
    return size


def sizes() -> dict[str, int]:
    """Bytes of each table and index that has any, the largest first."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.relname, pg_relation_size(c.oid) FROM pg_class c"
            " JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE c.relkind IN ('r', 'i') AND n.nspname = 'public'"
            " AND pg_relation_size(c.oid) > 8192 ORDER BY 2 DESC"
        )
        return dict(cursor.fetchall())
