"""Which decisions are plain, and may be written by lean statements."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from orchestrator.conf import engine_settings
from orchestrator.core.states import RunState, StepState
from orchestrator.engine.change import Change, events_of, fresh_row, row_of
from orchestrator.engine.work import Prepared, worker_name
from orchestrator.models import direct
from orchestrator.models.advance import Advance, Finish, PassOn
from orchestrator.models.statements import encoded

_PLAIN_MOVE = frozenset({"id", "from", "fence", "to", "cost", "output", "error", "input"})


def plain_move(change: Change, end: dict[str, Any] | None) -> Advance | PassOn | Finish | None:
    """The decision as a lean statement takes it, or None: then it needs the general one.

    Plain is a step without an effect or a cost that completed, in a run that was running. Then
    either the run goes on and the lane claims the one step, new and without an effect, that became
    READY by it (``change.claim_row`` is then its row, as the claim is about to write it), or a
    message goes out for that one step, or the run completes. ``end``: what the run's row gets then.
    """
    if change.company or not (_settles_plainly(change) and direct.is_free()):
        return None
    if end is not None:
        return _as_finish(change, end) if _completes(change, end) else None
    if change.decision.run_state is not RunState.RUNNING or change.decision.waiting_for:
        return None
    if change.decision.claim is None:
        return _as_pass_on(change) if _sends_one(change) else None
    return _as_advance(change) if _claims_plainly(change) else None


def _settles_plainly(change: Change) -> bool:
    move = change.subject
    return (
        move is not None
        and move["to"] == StepState.COMPLETED
        and move["from"] == StepState.RUNNING
        and move.keys() <= _PLAIN_MOVE
        and move["cost"] == 0
        and change.run.state == RunState.RUNNING
        and not change.actor
    )


def _completes(change: Change, end: dict[str, Any]) -> bool:
    return change.decision.run_state is RunState.COMPLETED and end["error"] is None


def _claims_plainly(change: Change) -> bool:
    decision, prepared = change.decision, change.prepared
    claim = decision.claim
    return (
        claim is not None
        and decision.ready == [claim]
        and claim.item is None
        and not change.passed
        and (prepared is None or prepared.effect is None)
    )


def _sends_one(change: Change) -> bool:
    decision = change.decision
    sent = [*decision.dispatch, *decision.carried]
    return len(sent) == 1 and decision.ready == sent and sent[0].item is None


def _as_advance(change: Change) -> Advance:
    prepared = change.prepared or Prepared()
    row = change.claim_row = fresh_row(change, change.decision.ready[0], prepared)
    usual = [
        ("step.ready", row.key, {}, ""),
        ("step.started", row.key, {"attempt": 1}, ""),
    ]
    step = change.workflow.steps[row.position]
    return Advance(
        **_settled(change, usual),
        next_id=row.id,
        key=row.key,
        position=row.position,
        type=step.type,
        queue=step.queue,
        timeout_s=step.timeout_s,
        input=prepared.input,
        gates=row.gates,
        worker=worker_name(),
        lease=engine_settings().lease,
    )


def _as_pass_on(change: Change) -> PassOn:
    row = row_of(change, change.decision.ready[0])
    return PassOn(
        **_settled(change, [("step.ready", row["key"], {}, "")]),
        next_id=UUID(row["id"]),
        key=row["key"],
        position=row["position"],
        type=row["type"],
        queue=row["queue"],
        plain_timeout_s=row["plain_timeout_s"],
        gates=row["gates"],
    )


def _as_finish(change: Change, end: dict[str, Any]) -> Finish:
    ended = change.decision.events[-1].payload
    return Finish(
        **_settled(change, [("run.completed", "", ended, "")]),
        run_output=end["output"],
        outcome=end["outcome"],
        compensation=end["compensation"],
        warnings=end["warnings"],
        ended=ended,
    )


def _settled(change: Change, usual: list[tuple[str, str, dict[str, Any], str]]) -> dict[str, Any]:
    """The common arguments. ``usual``: the lines that follow that of the completed step."""
    run, move = change.run, change.subject or {}
    lines = events_of(change)
    done = lines[0][1]
    is_usual = lines[0] == ("step.completed", done, {}, "") and lines[1:] == usual
    return {
        "run_id": run.id,
        "version": run.version,
        "compact": change.decision.snapshot.pack(),
        "step_id": move["id"],
        "fence": move["fence"],
        "done": done,
        "output": move["output"],
        "owed": encoded(move["input"]) if "input" in move else None,
        "events": None if is_usual else encoded(lines),
    }
