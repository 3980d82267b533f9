"""Parents and children: the two messages that cross from run to run.

No transaction locks two runs: each handler locks the one run that its message is for.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import transaction

from orchestrator.core import planning
from orchestrator.core.decision import EventDraft, Ref
from orchestrator.core.outcomes import Answer
from orchestrator.core.states import StepState
from orchestrator.engine import outbox
from orchestrator.engine.blueprints import compiled
from orchestrator.engine.control import apply_control
from orchestrator.engine.inbox import end_wait
from orchestrator.engine.values import Values
from orchestrator.models import Run, rows


@outbox.handles("child.ended")
def tell_parent(child_id: UUID, payload: dict[str, Any]) -> None:
    """A child is over: its parent's step gets the answer, if it still waits for it."""
    run = rows.lock_run(UUID(payload["parent"]))
    row = rows.read_step(UUID(payload["parent_step"]))
    if run is None or row is None or run.ended:
        return
    if row.state != StepState.WAITING or row.waiting_for != "child":
        return
    child = Run.objects.filter(pk=child_id).values("state", "output", "error", "outcome").get()
    workflow = compiled(run.blueprint_id)
    finished = EventDraft(
        "child.finished",
        Ref(row.position, row.index),
        {"child": str(child_id), "state": child["state"]},
    )
    answer = Answer(kind="child", payload={**child, "id": str(child_id)})
    settled, _ = end_wait(run, workflow, Values(run, workflow), row, answer, first=finished)
    transaction.on_commit(settled.send)
    posted = list(settled.posted)

    def handle_posted() -> None:
        outbox.handle(posted)

    transaction.on_commit(handle_posted)


@outbox.handles("child.cancel")
def cancel_children(_: UUID, payload: dict[str, Any]) -> None:
    """A parent's step no longer waits for its child: the child ends as cancelled."""
    step_id = UUID(payload["step_id"])
    children = Run.objects.open().filter(parent_step=step_id).values_list("id", flat=True)
    for child_id in children:
        run = rows.lock_run(child_id)
        if run is None or run.ended or run.snapshot.verdict is not None:
            continue
        decision = planning.cancel(
            compiled(run.blueprint_id), run.snapshot, reason="the parent run cancelled it"
        )
        apply_control(run, decision, actor="system:parent")
