"""Which decisions end a wait plainly, and may be written by the lean statement for that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from orchestrator.core.states import RunState, StepState
from orchestrator.engine.change import Change, events_of, new_rows
from orchestrator.models.wake import Wake

_PLAIN_END = frozenset({"id", "from", "fence", "to", "cost", "output", "error", "input"})
_PLAIN_AGAIN = frozenset({"id", "from", "fence", "to", "cost", "queued"})


def plain_waking(change: Change, end: object) -> Wake | None:
    """The decision as ``orchestrator_wake`` takes it, or None: then it needs the general one.

    Plain is: a wait is over, without a cost; its step completes, or is READY again; the run goes
    on, and nobody claims anything with it.
    """
    move, decision = change.subject, change.decision
    if (
        end is not None
        or move is None
        or decision.claim is not None
        or not _ends_a_wait(move)
        or decision.run_state is not RunState.RUNNING
        or change.run.state not in (RunState.WAITING, RunState.RUNNING)
        or decision.waiting_for
    ):
        return None
    again = move["to"] == StepState.READY
    return Wake(
        run_id=change.run.id,
        version=change.run.version,
        compact=decision.snapshot.pack(),
        step_id=UUID(move["id"]),
        fence=move["fence"],
        state=move["from"],
        output=None if again else move["output"],
        queued=bool(move.get("queued")) if again else None,
        ready=new_rows(change),
        events=events_of(change),
    )


def _ends_a_wait(move: Mapping[str, Any]) -> bool:
    if move["from"] not in (StepState.WAITING, StepState.RETRYING) or move["cost"] != 0:
        return False
    if move["to"] == StepState.COMPLETED:
        return move.keys() <= _PLAIN_END
    return move["to"] == StepState.READY and move.keys() <= _PLAIN_AGAIN
