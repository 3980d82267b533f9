"""Parents and children: the two messages that cross from run to run.

No transaction locks two runs: each handler locks the one run that its message is for.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import transaction

from orchestrator.core import planning
from orchestrator.core.decision import EventDraft, Ref
from orchestrator.core.errors import ErrorClass, StepError
from orchestrator.core.outcomes import Answer, Failed
from orchestrator.core.states import StepState
from orchestrator.engine import outbox, undoing
from orchestrator.engine.blueprints import compiled
from orchestrator.engine.control import apply_control
from orchestrator.engine.inbox import end_wait
from orchestrator.engine.values import Values
from orchestrator.models import Run, rows
from orchestrator.models.rows import StepRow

_TOLD = ("state", "output", "error", "outcome", "compensation")


@outbox.handles("child.ended")
def tell_parent(child_id: UUID, payload: dict[str, Any]) -> None:
    """A child is over: its parent's step gets the answer, if it still waits for it; if what the
    step did is being undone, that may have waited for this child."""
    run = rows.lock_run(UUID(payload["parent"]))
    row = rows.read_step(UUID(payload["parent_step"]))
    if run is None or row is None or run.ended:
        return
    if not _waits_for_child(row) or _newest_child(run.id, row.id) != child_id:
        undoing.look_at_children(run, row.key)
        return
    child = Run.objects.filter(pk=child_id).values(*_TOLD).get()
    workflow = compiled(run.blueprint_id)
    finished = EventDraft(
        "child.finished",
        Ref(row.position, row.index),
        {"child": str(child_id), "state": child["state"]},
    )
    answer = Answer(kind="child", payload={**child, "id": str(child_id)})
    settled, _ = end_wait(
        run,
        workflow,
        Values(run, workflow),
        row,
        answer,
        first=finished,
        outcome=_refused(payload),
    )
    transaction.on_commit(settled.send)
    posted = list(settled.posted)

    def handle_posted() -> None:
        outbox.handle(posted)

    transaction.on_commit(handle_posted)


def _refused(payload: dict[str, Any]) -> Failed | None:
    """What the child said could not be stored as its parent's: that is the step's failure."""
    words = payload.get(outbox.REFUSED)
    if words is None:
        return None
    return Failed(error=StepError(error_class=ErrorClass.PERMANENT, message=str(words)))


@outbox.handles("child.cancel")
def cancel_children(parent_id: UUID, payload: dict[str, Any]) -> None:
    """A parent's step no longer waits for its child: the child ends as cancelled."""
    step_id = UUID(payload["step_id"])
    row = rows.read_step(step_id)
    waits = row is not None and _waits_for_child(row)
    wanted = _newest_child(parent_id, step_id) if waits else None
    children = Run.objects.open().filter(parent=parent_id, parent_step=step_id)
    for child_id in children.values_list("id", flat=True):
        if child_id == wanted:
            continue  # the step was retried meanwhile, and waits for this one
        run = rows.lock_run(child_id)
        if run is None or run.ended or run.snapshot.verdict is not None:
            continue
        decision = planning.cancel(
            compiled(run.blueprint_id), run.snapshot, reason="the parent run cancelled it"
        )
        apply_control(run, decision, actor="system:parent")


def _waits_for_child(row: StepRow) -> bool:
    return row.state == StepState.WAITING and row.waiting_for == "child"


def _newest_child(parent_id: UUID, step_id: UUID) -> UUID | None:
    """The child that a waiting step waits for: a retried step has begun a new one."""
    children = Run.objects.filter(parent=parent_id, parent_step=step_id)
    return children.order_by("-id").values_list("id", flat=True).first()
