"""Reading whole histories, with the rows that they must come to; for replays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any
from uuid import UUID, uuid4

import orjson
from django.db import connection
from psycopg import ServerCursor

from orchestrator.core.decision import Ref
from orchestrator.core.replay_end import StoredRun, StoredStep
from orchestrator.core.replay_log import Recorded
from orchestrator.core.snapshot import unpack
from orchestrator.models.statements import fetch_all_prepared

PAGE = 2000
"""Lines of history in memory at a time; what one decision wrote comes on top."""


@dataclass(frozen=True, slots=True)
class Told:
    """A run's row and its steps' rows."""

    run_id: UUID
    blueprint_id: int
    workflow: str
    row: Sequence[Any]
    steps: list[StoredStep]

    def stored(self) -> StoredRun:
        """The run's row; ValueError for a compact state of another format."""
        state, waiting_for, outcome, undone, error, warnings, next_seq, compact = self.row
        return StoredRun(
            state=state,
            waiting_for=waiting_for,
            outcome=outcome,
            compensation=undone,
            error=None if error is None else orjson.loads(error),
            warnings=orjson.loads(warnings),
            next_seq=next_seq,
            snapshot=unpack(compact),
        )


def read_told(run_ids: Sequence[UUID]) -> list[Told]:
    """The rows of these runs, by id."""
    steps = _read_steps(run_ids)
    found = fetch_all_prepared(
        "SELECT id, blueprint_id, workflow, state, waiting_for, outcome, compensation, error,"
        " warnings, next_seq, compact FROM orchestrator_run WHERE id = ANY(%s) ORDER BY id",
        [list(run_ids)],
    )
    return [Told(row[0], row[1], row[2], row[3:], steps.get(row[0], [])) for row in found]


def _read_steps(run_ids: Sequence[UUID]) -> dict[UUID, list[StoredStep]]:
    found = fetch_all_prepared(
        "SELECT run_id, position, index, state, waiting_for, attempt, n_retries, round"
        " FROM orchestrator_step WHERE run_id = ANY(%s) ORDER BY run_id",
        [list(run_ids)],
    )
    return {
        run_id: [
            StoredStep(
                ref=Ref(position, index),
                state=state,
                waiting_for=waiting,
                attempt=attempt,
                n_retries=retries,
                round=number,
            )
            for _, position, index, state, waiting, attempt, retries, number in rows
        ]
        for run_id, rows in groupby(found, key=itemgetter(0))
    }


def read_histories(run_ids: Sequence[UUID]) -> Iterator[tuple[UUID, Iterator[Recorded]]]:
    """The histories of these runs by id, each line by line; read in pages, inside a transaction.

    Each must be read before the next one is asked for.
    """
    with ServerCursor(connection.connection, f"history_{uuid4().hex}") as cursor:
        cursor.itersize = PAGE
        cursor.execute(
            "SELECT run_id, seq, type, step, payload, (extract(epoch FROM at) * 1000000)::bigint"
            " FROM orchestrator_event WHERE run_id = ANY(%s) ORDER BY run_id, seq",
            [list(run_ids)],
        )
        for run_id, lines in groupby(cursor, key=itemgetter(0)):
            yield run_id, map(_recorded, lines)


def _recorded(row: Sequence[Any]) -> Recorded:
    return Recorded(row[1], row[2], row[3], orjson.loads(row[4]), row[5])


def was_repaired(run_id: UUID) -> bool:
    """Whether somebody repaired the run: then some outputs are not those of then."""
    found = fetch_all_prepared(
        "SELECT 1 FROM orchestrator_event WHERE run_id = %s AND type LIKE 'repair.%%' LIMIT 1",
        [run_id],
    )
    return bool(found)


def sizes(run_ids: Sequence[UUID]) -> list[tuple[UUID, int]]:
    """How long the history of each run is; unknown runs are absent."""
    found = fetch_all_prepared(
        "SELECT id, next_seq - 1 FROM orchestrator_run WHERE id = ANY(%s) ORDER BY id",
        [list(run_ids)],
    )
    return [(run_id, length) for run_id, length in found]
