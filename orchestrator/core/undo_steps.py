"""The hidden steps that undo a finished one: what they are called, and which ones there are."""

from __future__ import annotations

from collections.abc import Collection

from orchestrator.core.compiled import Join, Merge, StepPlan
from orchestrator.core.definition import AnyStep, Document, SubWorkflowStep
from orchestrator.core.expressions import compile_template
from orchestrator.core.policies import Retry

PARKING_TIMEOUT_S = 60.0
"""Time for the body of a step that only parks: a gate, a wait, a child's start."""
COMPENSATION_QUEUE = "compensation"
UNDO = "undo:"
"""What the key of a compensation starts with; no key of a document can."""
UNDO_CHILD = "undo_child"
"""The type of a compensation that is another run's saga; no step of a document has it."""


def undoes_something(document: Document, undoable: Collection[str]) -> bool:
    """Whether a completed run of it may have something to undo, or that cannot be undone;
    ``undoable`` as for ``compile_workflow``."""
    return any(
        step.compensate is not None
        or step.irreversible
        or (isinstance(step, SubWorkflowStep) and step.workflow in undoable)
        for step in document.steps.values()
    )


def must_know(step: AnyStep) -> bool:
    """Whether a doubt about its effect is settled before anything is built, or undone, on it."""
    if step.effect is None:
        return False
    return step.effect.money or step.irreversible or step.compensate is not None


def undo_child(key: str, workflow: str, *, position: int, undoes: int) -> StepPlan:
    """The hidden step that has a completed child undone, through the child's own saga."""
    return StepPlan(
        position=position,
        key=UNDO + key,
        type=UNDO_CHILD,
        queue=COMPENSATION_QUEUE,
        config={"type": UNDO_CHILD, "workflow": workflow},
        ins=(),
        outs=(),
        join=Join.ALL,
        join_count=1,
        late_cancel=False,
        when=None,
        optional=False,
        input=compile_template({}, names=None),
        merge=Merge(kind="nested"),
        timeout_s=PARKING_TIMEOUT_S,
        child_timeout_s=None,
        retry=Retry(),
        fallback=None,
        owner=None,
        on_error="fail",
        for_each=None,
        repeat=None,
        effect_key=None,
        rank=1,
        undoes=undoes,
    )
