"""The guarded moves that only a repair makes; call with the run locked, in its transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson
from django.db import connection

from orchestrator.core.errors import InvariantBroken
from orchestrator.models.statements import dumps, execute


def reopen_run(run_id: UUID, version: int) -> None:
    """Take back the end of a run: it stands paused until the decision of the repair is written.

    The only way out of a terminal state; ``core.states.RUN_REPAIRS`` names those that have one.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE orchestrator_run SET state = 'paused', finished_at = NULL, output = NULL,"
            " error = NULL, outcome = '' WHERE id = %s AND version = %s"
            " AND state IN ('failed', 'cancelled')",
            [run_id, version],
        )
        if cursor.rowcount != 1:
            raise InvariantBroken(f"run {run_id} was not reopened at version {version}")


def undo_run(run_id: UUID, version: int) -> None:
    """A run that is over goes on to undo what it did: its result and its end stay to be seen.

    Beside ``reopen_run`` the only way out of a terminal state (``core.states.RUN_UNDOES``), and one
    that leads back to that state.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE orchestrator_run SET state = 'compensating' WHERE id = %s AND version = %s"
            " AND state IN ('completed', 'failed', 'cancelled', 'timed_out')",
            [run_id, version],
        )
        if cursor.rowcount != 1:
            raise InvariantBroken(f"run {run_id} was not at an end at version {version}")


def note_compensation(run_id: UUID, word: str) -> None:
    """What of the run is undone by now: none, partial or full."""
    execute("UPDATE orchestrator_run SET compensation = %s WHERE id = %s", [word, run_id])


def parent_is_over(run_id: UUID) -> bool:
    """Whether the run that started this one has ended."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT p.state IN ('completed', 'failed', 'cancelled', 'timed_out')"
            " FROM orchestrator_run c JOIN orchestrator_run p ON p.id = c.parent_id"
            " WHERE c.id = %s",
            [run_id],
        )
        row = cursor.fetchone()
    return bool(row and row[0])


def time_is_over(run_id: UUID) -> bool:
    """Whether the run has used up its own time, so that it could only time out again."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT CASE WHEN time_is_wall THEN deadline_at <= orchestrator_now()"
            " ELSE worked >= time_limit END FROM orchestrator_run WHERE id = %s",
            [run_id],
        )
        row = cursor.fetchone()
    return bool(row and row[0])


_AFRESH = (
    " n_retries = 0, n_lost = 0, round = 1, previous = NULL, error = NULL, output = NULL,"
    " covered_by = '', fence = fence + 1, finished_at = NULL, lease_until = NULL,"
    " timeout_at = NULL, waiting_for = '', waiting_key = '', why = ''"
)
_OVER = "('completed', 'failed', 'skipped', 'timed_out', 'cancelled')"


def reopen_steps(run_id: UUID, positions: list[int]) -> None:
    """Steps that ended are BLOCKED again; the items that a for_each of them had are of the past."""
    if not positions:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE orchestrator_step SET state = 'blocked', items_total = NULL,{_AFRESH}"  # noqa: S608 - constant columns
            f" WHERE run_id = %s AND position = ANY(%s) AND scope = '' AND state IN {_OVER}",
            [run_id, positions],
        )
        if cursor.rowcount != len(positions):
            raise InvariantBroken(f"{cursor.rowcount} of {len(positions)} steps were reopened")
        cursor.execute(
            "UPDATE orchestrator_step SET state = 'skipped'"
            " WHERE run_id = %s AND position = ANY(%s) AND scope <> '' AND state <> 'skipped'",
            [run_id, positions],
        )
    _close_letters(run_id, positions)


def resume_loops(run_id: UUID, positions: list[int]) -> None:
    """Each for_each is at work again, its items that did not complete BLOCKED until released."""
    if not positions:
        return
    execute(
        f"UPDATE orchestrator_step SET{_AFRESH},"
        " state = CASE WHEN scope = '' THEN 'running' ELSE 'blocked' END"
        " WHERE run_id = %s AND position = ANY(%s)"
        " AND state IN ('failed', 'timed_out', 'cancelled', 'blocked')",
        [run_id, positions],
    )
    _close_letters(run_id, positions)


def _close_letters(run_id: UUID, positions: list[int]) -> None:
    """Dead letters of steps that run again are answered."""
    execute(
        "UPDATE orchestrator_deadletter d SET retried_at = orchestrator_now()"
        " FROM orchestrator_step s WHERE s.id = d.step_id AND d.run_id = %s"
        " AND s.position = ANY(%s) AND d.retried_at IS NULL",
        [run_id, positions],
    )


# -- what a repair looks at ------------------------------------------------------------------------


def step_states(run_id: UUID) -> list[tuple[int, int | None, str]]:
    """Position, item index and state of every row of the run."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT position, index, state FROM orchestrator_step WHERE run_id = %s", [run_id]
        )
        return [(position, index, state) for position, index, state in cursor.fetchall()]


def steps_after(run_id: UUID, sequence: int) -> set[str]:
    """The keys of the steps that ended after that line of the history."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT split_part(step, '[', 1) FROM orchestrator_event"
            " WHERE run_id = %s AND seq > %s AND type IN ('step.completed', 'step.failed',"
            "  'step.timed_out', 'step.skipped', 'step.cancelled')",
            [run_id, sequence],
        )
        return {key for (key,) in cursor.fetchall()}


@dataclass(frozen=True, slots=True)
class Ran:
    """What the steps in question have cost and done so far.

    ``keys``: those that have begun; ``cost_microusd`` None: some price is unknown; ``effects``:
    (key, status) in order.
    """

    keys: list[str]
    cost_microusd: int | None
    effects: list[tuple[str, str]]


_AGAIN = (
    " s.run_id = %s AND s.position = ANY(%s) AND s.attempt > 0"
    " AND NOT (s.position = ANY(%s) AND s.index IS NOT NULL AND s.state = 'completed')"
)


def what_ran(run_id: UUID, positions: list[int], loops: list[int]) -> Ran:
    """What the steps at ``positions`` came to; of ``loops`` only the unfinished items count."""
    params: list[Any] = [run_id, positions, loops]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT coalesce(array_agg(s.key ORDER BY s.position) FILTER (WHERE s.scope = ''),"  # noqa: S608 - constant text
            " '{}'), coalesce(sum(s.cost_microusd), 0), coalesce(bool_or(s.cost_microusd IS NULL),"
            f" false) FROM orchestrator_step s WHERE{_AGAIN}",
            params,
        )
        row = cursor.fetchone()
        cursor.execute(
            "SELECT e.idempotency_key, e.status FROM orchestrator_effect e"  # noqa: S608 - constant text
            f" JOIN orchestrator_step s ON s.id = e.step_id WHERE{_AGAIN} ORDER BY e.id",
            params,
        )
        effects = [(key, status) for key, status in cursor.fetchall()]
    assert row is not None
    keys, cost, unknown = row
    return Ran(list(keys), None if unknown else int(cost), effects)


# -- effects ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HeldEffect:
    """An effect of the run, with the step that holds it; ``nested``: a call that its body made."""

    id: int
    status: str
    step_id: UUID
    nested: bool


def find_effect(run_id: UUID, key: str) -> HeldEffect | None:
    """The run's effect of that key."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id, status, step_id, nested FROM orchestrator_effect"
            " WHERE run_id = %s AND idempotency_key = %s",
            [run_id, key],
        )
        row = cursor.fetchone()
    return None if row is None else HeldEffect(*row)


def settle_effect(effect_id: int, move: dict[str, Any]) -> None:
    """Write what a person found out about an effect whose step is over; ``move`` as documented in
    sql/apply.sql."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE orchestrator_effect SET status = %s, response = %s::jsonb, response_hash = %s,"
            " external_ref = %s, reason = %s, settled_at = orchestrator_now()"
            " WHERE id = %s AND status IN ('intended', 'in_doubt')",
            [
                move["status"],
                dumps(move.get("response")) if "response" in move else None,
                move.get("response_hash", ""),
                move.get("external_ref", ""),
                move.get("reason", ""),
                effect_id,
            ],
        )
        if cursor.rowcount != 1:
            raise InvariantBroken(f"effect {effect_id} is no longer in doubt")


# -- the audit -------------------------------------------------------------------------------------


def find_repair(run_id: UUID, token: str) -> tuple[str, dict[str, Any]] | None:
    """Fingerprint and answer of the repair that had this token."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT fingerprint, result FROM orchestrator_repair WHERE run_id = %s AND token = %s",
            [run_id, token],
        )
        row = cursor.fetchone()
    return None if row is None else (row[0], orjson.loads(row[1]))


def store_repair(fields: dict[str, Any]) -> None:
    """Keep the repair: every column of ``Repair`` but ``id`` and ``at``."""
    names: Sequence[str] = list(fields)
    marks = ", ".join("%s::jsonb" if name == "result" else "%s" for name in names)
    values = [dumps(value) if name == "result" else value for name, value in fields.items()]
    execute(
        f"INSERT INTO orchestrator_repair ({', '.join(names)}, at)"  # noqa: S608 - column names of ours
        f" VALUES ({marks}, orchestrator_now())",
        values,
    )
