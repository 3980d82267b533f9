"""Which decisions are the plain way on, and may be written by the lean statement."""

from __future__ import annotations

import orjson

from orchestrator.conf import engine_settings
from orchestrator.core.states import RunState, StepState
from orchestrator.engine.change import Change, events_of, fresh_row
from orchestrator.engine.work import Prepared, worker_name
from orchestrator.models import direct
from orchestrator.models.advance import Advance
from orchestrator.models.statements import encoded

_PLAIN_MOVE = frozenset({"id", "from", "fence", "to", "cost", "output", "error", "input"})


def plain_way_on(change: Change, end: object) -> Advance | None:
    """The decision as ``orchestrator_advance`` takes it, or None: then it needs the general one.

    Plain is: one step without an effect or a cost completed, the run goes on running, and the lane
    claims the one step, new and without an effect, that became READY by it. ``change.claim_row`` is
    then the claimed step's row, as the claim is about to write it.
    """
    if end is None and _settles_plainly(change) and _claims_plainly(change) and direct.is_free():
        return _as_advance(change)
    return None


def _settles_plainly(change: Change) -> bool:
    move, decision = change.subject, change.decision
    return (
        move is not None
        and move["to"] == StepState.COMPLETED
        and move["from"] == StepState.RUNNING
        and move.keys() <= _PLAIN_MOVE
        and move["cost"] == 0
        and change.run.state == RunState.RUNNING
        and decision.run_state is RunState.RUNNING
        and not decision.waiting_for
    )


def _claims_plainly(change: Change) -> bool:
    claim, prepared = change.decision.claim, change.prepared
    return (
        claim is not None
        and change.decision.ready == [claim]
        and claim.item is None
        and not change.passed
        and (prepared is None or prepared.effect is None)
    )


def _as_advance(change: Change) -> Advance:
    run, move = change.run, change.subject or {}
    prepared = change.prepared or Prepared()
    claim_row = change.claim_row = fresh_row(change, change.decision.ready[0], prepared)
    events = events_of(change)
    done = events[0][1]
    usual = [
        ("step.completed", done, {}, ""),
        ("step.ready", claim_row.key, {}, ""),
        ("step.started", claim_row.key, {"attempt": 1}, ""),
    ]
    step = change.workflow.steps[claim_row.position]
    return Advance(
        run_id=run.id,
        version=run.version,
        compact=change.decision.snapshot.pack(),
        step_id=move["id"],
        fence=move["fence"],
        done=done,
        output=move["output"],
        owed=encoded(move["input"]) if "input" in move else None,
        next_id=claim_row.id,
        key=claim_row.key,
        position=claim_row.position,
        type=step.type,
        queue=step.queue,
        timeout_s=step.timeout_s,
        input=prepared.input,
        gates=claim_row.gates,
        events=None if events == usual else orjson.dumps(events),
        worker=worker_name(),
        lease=engine_settings().lease,
    )
