"""Pause, resume, cancel: at any time, by people and by parents."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from django.db import transaction

from orchestrator.core import planning
from orchestrator.core.compiled import CompiledWorkflow
from orchestrator.core.decision import Decision
from orchestrator.core.errors import NotFound, StateConflict
from orchestrator.core.snapshot import Snapshot
from orchestrator.core.states import RunState
from orchestrator.crash import Unit
from orchestrator.engine import outbox
from orchestrator.engine.blueprints import compiled
from orchestrator.engine.change import Change
from orchestrator.engine.halting import ALERT as HALTED
from orchestrator.engine.settle import apply_change
from orchestrator.engine.settled import Settled
from orchestrator.engine.values import Values
from orchestrator.models import alert_rows, rows
from orchestrator.models.rows import RunRow


def pause_run(run_id: UUID, *, actor: str, reason: str) -> None:
    """Start nothing new; running bodies finish. Opens or joins a transaction.

    Raises NotFound, StateConflict (paused already, ending, or over).
    """
    _act(run_id, actor, lambda w, s: planning.pause(w, s, reason=reason), word="paused")


def resume_run(run_id: UUID, *, actor: str, reason: str) -> None:
    """Let a paused run go on; a step whose failure paused it is tried again.

    Raises NotFound, StateConflict (not paused).
    """
    _act(
        run_id,
        actor,
        lambda w, s: planning.resume(w, s, reason=reason),
        word="resumed",
        only_from=RunState.PAUSED,
    )


def cancel_run(run_id: UUID, *, actor: str, reason: str) -> None:
    """End a run as cancelled: nothing new starts, running bodies finish, children are cancelled.

    Raises NotFound, StateConflict (ending, or over).
    """
    _act(run_id, actor, lambda w, s: planning.cancel(w, s, reason=reason), word="cancelled")


def _act(
    run_id: UUID,
    actor: str,
    decide: Callable[[CompiledWorkflow, Snapshot], Decision],
    *,
    word: str,
    only_from: RunState | None = None,
) -> None:
    with Unit("control"):
        run = rows.lock_run(run_id)
        if run is None:
            raise NotFound(f"there is no run {run_id}")
        if run.ended:
            raise StateConflict(f"the run is {run.state}; it cannot be {word}", state=run.state)
        if only_from is not None and run.state is not only_from:
            message = f"the run is {run.state}; only a run that is {only_from} can be {word}"
            raise StateConflict(message, state=run.state)
        if only_from is RunState.PAUSED:
            run.snapshot.paused = True  # a run that was halted unread: it can be read now
            alert_rows.close_alert(HALTED, str(run_id))
        apply_control(run, decide(compiled(run.blueprint_id), run.snapshot), actor=actor)


def apply_control(run: RunRow, decision: Decision, *, actor: str) -> None:
    """Write a decision about a locked run in the open transaction; tells others on commit."""
    workflow = compiled(run.blueprint_id)
    settled = Settled(run=run, workflow=workflow)
    change = Change(run=run, workflow=workflow, decision=decision, actor=actor)
    apply_change(change, Values(run, workflow), settled)
    transaction.on_commit(settled.send)
    posted = list(settled.posted)

    def handle_posted() -> None:
        outbox.handle(posted)

    transaction.on_commit(handle_posted)
