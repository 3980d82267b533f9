"""Undoing a run that failed: in which order, and what became of it (SPEC 4.9).

A finished step is undone when everything that was done behind it, along the graph, has been
undone (or could not be): reverse order, parallel where the graph was.
"""

from __future__ import annotations

from orchestrator.core.compiled import CompiledWorkflow, StepPlan
from orchestrator.core.snapshot import ENDED, Code, Snapshot

_DONE = frozenset(map(int, (Code.COMPLETED, Code.COMPENSATING, Code.COMPENSATED)))


def undoable(workflow: CompiledWorkflow, snapshot: Snapshot) -> list[StepPlan]:
    """The compensations of all steps that finished."""
    return [
        step
        for step in workflow.compensations
        if step.undoes is not None and snapshot.code(step.undoes) in _DONE
    ]


def has_begun(workflow: CompiledWorkflow, snapshot: Snapshot) -> bool:
    """Whether a compensation has been started."""
    return any(snapshot.code(step.position) != Code.BLOCKED for step in workflow.compensations)


def due(workflow: CompiledWorkflow, snapshot: Snapshot) -> list[int]:
    """The compensations that may start now, by position."""
    wanted = undoable(workflow, snapshot)
    if not wanted:
        return []
    open_ones = {s.undoes for s in wanted if snapshot.code(s.position) not in ENDED}
    return [
        step.position
        for step in wanted
        if snapshot.code(step.position) == Code.BLOCKED
        and not (_behind(workflow, step.undoes) & (open_ones - {step.undoes}))
    ]


def _behind(workflow: CompiledWorkflow, position: int | None) -> set[int | None]:
    """Every step that comes after this one along the edges, and through fallbacks."""
    found: set[int | None] = set()
    frontier = [position]
    while frontier:
        current = frontier.pop()
        if current is None or current in found:
            continue
        found.add(current)
        step = workflow.steps[current]
        frontier.extend(edge.target for edge in step.outs)
        if step.owner is not None:  # what follows the owner follows its fallback too
            frontier.append(step.owner)
    found.discard(position)
    return found


def verdict(workflow: CompiledWorkflow, snapshot: Snapshot) -> str:
    """What was undone: ``none`` (there was nothing to undo), ``full`` or ``partial``."""
    wanted = undoable(workflow, snapshot)
    final = [s for s in workflow.forward if s.irreversible and snapshot.code(s.position) in _DONE]
    if not wanted and not final:
        return "none"
    all_undone = all(snapshot.code(step.position) == Code.COMPLETED for step in wanted)
    return "full" if all_undone and not final else "partial"


def left_over(workflow: CompiledWorkflow, snapshot: Snapshot) -> list[StepPlan]:
    """Finished steps that stay done: irreversible ones. A person has to look at them."""
    return [s for s in workflow.forward if s.irreversible and snapshot.code(s.position) in _DONE]
