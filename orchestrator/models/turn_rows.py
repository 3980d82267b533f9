"""Turns as rows: read by step and round, written under the step's fence with their cost.

The cost of a turn counts from the moment it is stored: the run's and the step's sums move in the
same transaction, so that a worker that dies afterwards takes no cost with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson
from django.db import connection

from orchestrator.models.call_rows import Holder
from orchestrator.models.moves import StaleFence, append_event
from orchestrator.models.statements import dumps, execute, fetch_all_prepared, fetch_prepared


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTurn:
    """A turn as read."""

    conversation: int
    kind: str
    name: str
    content: dict[str, Any]
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a turn belongs: its step's round, its conversation and its number in it."""

    round: int
    conversation: int
    number: int
    fingerprint: str
    attempt: int


def read_last(step_id: UUID, round_number: int) -> list[StoredTurn]:
    """The turns of the step's last conversation in that round, in order."""
    found = fetch_all_prepared(
        "SELECT conversation, kind, name, content::text, fingerprint FROM orchestrator_turn"
        " WHERE step_id = %s AND round = %s AND conversation = (SELECT max(conversation)"
        "  FROM orchestrator_turn WHERE step_id = %s AND round = %s) ORDER BY number",
        [step_id, round_number, step_id, round_number],
    )
    return [
        StoredTurn(
            conversation=conversation,
            kind=kind,
            name=name,
            content=orjson.loads(content),
            fingerprint=fingerprint,
        )
        for conversation, kind, name, content, fingerprint in found
    ]


def spent(step_id: UUID, round_number: int) -> tuple[int | None, int, int]:
    """Cost (None: some price is unknown), tokens in and out of the step's round so far."""
    row = fetch_prepared(
        "SELECT CASE WHEN bool_and(cost_microusd IS NOT NULL) IS NOT false"
        "  THEN coalesce(sum(cost_microusd), 0)::bigint END,"
        " coalesce(sum(tokens_in), 0)::bigint, coalesce(sum(tokens_out), 0)::bigint"
        " FROM orchestrator_turn WHERE step_id = %s AND round = %s",
        [step_id, round_number],
    )
    return (0, 0, 0) if row is None else (row[0], row[1], row[2])


def insert(
    holder: Holder, place: Place, turn: dict[str, Any], *, line: tuple[str, dict[str, Any]]
) -> None:
    """Store one turn with its line of history and its cost; ``turn`` has ``kind, name, content,
    tokens_in, tokens_out, cost, price, seconds, model``. Call in a transaction. Raises StaleFence
    when the step is no longer the holder's, or when another attempt stored that turn. The same
    turn again, as after a lost answer to a COMMIT, changes nothing."""
    if _is_stored(holder, place):
        return
    append_event(holder.run_id, line[0], line[1], "")
    values = {
        **turn,
        "content": dumps(turn["content"]),
        "step": holder.step_id,
        "run": holder.run_id,
        "fence": holder.fence,
        "round": place.round,
        "conversation": place.conversation,
        "number": place.number,
        "fingerprint": place.fingerprint,
        "attempt": place.attempt,
    }
    with connection.cursor() as cursor:
        cursor.execute(_INSERT, values)
        if cursor.fetchone() is None:
            raise StaleFence(f"step {holder.step_id} is no longer ours")
        if turn["kind"] == "model":
            cursor.execute(_COUNT_STEP, values)
            cursor.execute(_COUNT_RUN, values)


def _is_stored(holder: Holder, place: Place) -> bool:
    row = fetch_prepared(
        "SELECT 1 FROM orchestrator_turn WHERE step_id = %s AND round = %s AND conversation = %s"
        " AND number = %s AND fence = %s",
        [holder.step_id, place.round, place.conversation, place.number, holder.fence],
    )
    return row is not None


def note(holder: Holder, line: tuple[str, dict[str, Any]], *, billed: bool) -> None:
    """A line of history about a call that gave no answer. ``billed``: it may have cost something,
    nobody knows how much. Call in a transaction."""
    append_event(holder.run_id, line[0], line[1], "")
    if billed:
        execute(
            "UPDATE orchestrator_run SET cost_unknown = true WHERE id = %s AND NOT cost_unknown",
            [holder.run_id],
        )


def take_place(holder: Holder, key: str) -> bool:
    """The running step passes a limited gate for a while; False when it is no longer ours, or has
    passed another. Call with the gate's rows locked."""
    row = fetch_prepared(
        "UPDATE orchestrator_step SET passed = %s WHERE id = %s AND fence = %s"
        " AND state = 'running' AND passed IN ('', %s) RETURNING 1",
        [key, holder.step_id, holder.fence, key],
    )
    return row is not None


def give_place(holder: Holder, key: str) -> None:
    """It is through."""
    execute(
        "UPDATE orchestrator_step SET passed = '' WHERE id = %s AND fence = %s"
        " AND state = 'running' AND passed = %s",
        [holder.step_id, holder.fence, key],
    )


_INSERT = """
INSERT INTO orchestrator_turn (tenant, workflow, run_id, step_id, round, conversation, number,
    kind, name, content, fingerprint, attempt, fence, tokens_in, tokens_out, cost_microusd, price,
    seconds, at)
SELECT r.tenant, r.workflow, r.id, s.id, %(round)s, %(conversation)s, %(number)s,
    %(kind)s, %(name)s, %(content)s::jsonb, %(fingerprint)s, %(attempt)s, s.fence, %(tokens_in)s,
    %(tokens_out)s, %(cost)s::bigint, %(price)s, %(seconds)s, orchestrator_now()
  FROM orchestrator_step s JOIN orchestrator_run r ON r.id = s.run_id
 WHERE s.id = %(step)s AND s.fence = %(fence)s AND s.state = 'running'
ON CONFLICT (step_id, round, conversation, number) DO NOTHING
RETURNING id
"""
_COUNT_STEP = """
UPDATE orchestrator_step SET cost_microusd = cost_microusd + %(cost)s::bigint,
    tokens_in = tokens_in + %(tokens_in)s, tokens_out = tokens_out + %(tokens_out)s,
    model = %(model)s
 WHERE id = %(step)s AND fence = %(fence)s
"""
_COUNT_RUN = """
UPDATE orchestrator_run SET cost_microusd = cost_microusd + coalesce(%(cost)s::bigint, 0),
    cost_unknown = cost_unknown OR %(cost)s::bigint IS NULL,
    tokens_in = tokens_in + %(tokens_in)s, tokens_out = tokens_out + %(tokens_out)s
 WHERE id = %(run)s
"""
