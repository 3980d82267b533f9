"""A completed child is undone with its parent: two messages that cross from run to run.

``child.undo`` goes to each child, ``child.undone`` comes back when one stands at its end again.
Each handler locks the one run that its message is for, and looks at what there is: a message
doubled, or late since only the sweep found it, changes nothing but time.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import transaction

from orchestrator.core import undoing
from orchestrator.core.decision import EventDraft, Ref
from orchestrator.core.outcomes import Answer
from orchestrator.core.states import StepState
from orchestrator.core.undo_steps import UNDO
from orchestrator.engine import outbox
from orchestrator.engine.blueprints import compiled
from orchestrator.engine.control import apply_control
from orchestrator.engine.inbox import end_wait
from orchestrator.engine.values import Values
from orchestrator.models import family_rows, outbox_rows, repair_rows, rows
from orchestrator.models.rows import RunRow, StepRow

PARENT = "system:parent"


@outbox.handles("child.undo")
def undo_child(parent_id: UUID, payload: dict[str, Any]) -> None:
    """A child that had completed undoes all that it did, and tells its parent at its end."""
    run = rows.lock_run(UUID(payload["child"]))
    if run is None or not (run.ended or run.snapshot.undo is not None):
        outbox_rows.post("child.undone", parent_id, payload)
        return
    workflow, state = compiled(run.blueprint_id), run.state
    decision = undoing.undo_all(workflow, run.snapshot, Values(run, workflow), state=state)
    if run.ended:
        repair_rows.undo_run(run.id, run.version)
    apply_control(run, decision, actor=PARENT)


@outbox.handles("child.undone")
def tell_undone(parent_id: UUID, payload: dict[str, Any]) -> None:
    """A child stands at its end again: when all of the step do, their parent's wait is over."""
    run = rows.lock_run(parent_id)
    row = _undo_step(run, payload) if run is not None else None
    if run is not None and row is not None:
        _look(run, row)


def look_at_children(run: RunRow, key: str) -> None:
    """A child that nobody waits for any more has ended: what its step did may be being undone, and
    wait for just that. Call with the parent locked."""
    row = rows.read_item(run.id, UNDO + key, "")
    if row is not None:
        _look(run, row)


def _look(run: RunRow, row: StepRow) -> None:
    """The wait of the hidden step is over once no child of its step is under way, or still to be
    told."""
    if run.ended or row.state != StepState.WAITING or row.waiting_for != "child":
        return
    if family_rows.is_asked(run.id, row.id):
        return
    found = family_rows.children_of(run.id, row.key.removeprefix(UNDO))
    if any(child.moves for child in found):
        return
    told = [{"id": str(c.id), "state": c.state, "compensation": c.compensation} for c in found]
    workflow = compiled(run.blueprint_id)
    first = EventDraft("child.undone", Ref(row.position), {"children": told[:50]})
    answer = Answer(kind="child", payload={"children": told})
    settled, _ = end_wait(run, workflow, Values(run, workflow), row, answer, first=first)
    transaction.on_commit(settled.send)
    posted = list(settled.posted)

    def handle_posted() -> None:
        outbox.handle(posted)

    transaction.on_commit(handle_posted)


def _undo_step(run: RunRow, payload: dict[str, Any]) -> StepRow | None:
    """The hidden step that undoes the one the child belongs to."""
    if "undo_step" in payload:
        return rows.read_step(UUID(payload["undo_step"]))
    step = rows.read_step(UUID(payload["parent_step"]))
    return rows.read_item(run.id, UNDO + step.key, "") if step is not None else None
