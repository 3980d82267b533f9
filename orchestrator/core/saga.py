"""Undoing a run that failed, or steps of one: in which order, and what became of it (SPEC 4.9).

A finished step is undone when everything that was done behind it, along the graph, has been
undone (or could not be): reverse order, parallel where the graph was.
"""

from __future__ import annotations

from orchestrator.core.compiled import CompiledWorkflow, StepPlan
from orchestrator.core.snapshot import ENDED, Code, Snapshot

_DONE = frozenset(map(int, (Code.COMPLETED, Code.COMPENSATING, Code.COMPENSATED)))


def did(snapshot: Snapshot, position: int) -> bool:
    """Whether the step did something: it finished (if only before a repair set it back), or some of
    its items or children began."""
    return snapshot.code(position) in _DONE or position in snapshot.acted


def undoable(workflow: CompiledWorkflow, snapshot: Snapshot) -> list[StepPlan]:
    """The compensations of all steps that did something."""
    return [
        step
        for step in workflow.compensations
        if step.undoes is not None and did(snapshot, step.undoes)
    ]


def standing(workflow: CompiledWorkflow, snapshot: Snapshot) -> list[StepPlan]:
    """The compensations of the finished steps that have not been undone."""
    return [s for s in undoable(workflow, snapshot) if not is_undone(snapshot, s)]


def is_undone(snapshot: Snapshot, undo: StepPlan) -> bool:
    """Whether the compensation has undone its step; one that had not finished keeps its state."""
    return snapshot.code(undo.position) == Code.COMPLETED


def undo_of(workflow: CompiledWorkflow, position: int) -> StepPlan | None:
    """The compensation of a step; None: nothing undoes it."""
    return next((step for step in workflow.compensations if step.undoes == position), None)


def has_begun(workflow: CompiledWorkflow, snapshot: Snapshot) -> bool:
    """Whether a compensation has been started."""
    return any(snapshot.code(step.position) != Code.BLOCKED for step in workflow.compensations)


def due(workflow: CompiledWorkflow, snapshot: Snapshot) -> list[int]:
    """The compensations that may start now, by position; of an ``undo`` only those it names."""
    wanted = undoable(workflow, snapshot)
    if snapshot.undo is not None:
        wanted = [step for step in wanted if step.undoes in snapshot.undo.steps]
    if not wanted:
        return []
    open_ones = {s.undoes for s in wanted if snapshot.code(s.position) not in ENDED}
    return [
        step.position
        for step in wanted
        if step.undoes is not None
        and snapshot.code(step.position) == Code.BLOCKED
        and not (behind(workflow, step.undoes) & (open_ones - {step.undoes}))
    ]


def behind(workflow: CompiledWorkflow, position: int) -> set[int]:
    """Every step that comes after this one along the edges, and through fallbacks."""
    found: set[int] = set()
    frontier = [position]
    while frontier:
        current = frontier.pop()
        if current in found:
            continue
        found.add(current)
        step = workflow.steps[current]
        frontier.extend(edge.target for edge in step.outs)
        if step.owner is not None:  # what follows the owner follows its fallback too
            frontier.append(step.owner)
    found.discard(position)
    return found


def layers(workflow: CompiledWorkflow) -> dict[int, int]:
    """In which turn each step with a compensation is undone if all are, from 1; equal: at once."""
    wanted = {s.undoes for s in workflow.compensations if s.undoes is not None}
    before = {position: behind(workflow, position) & wanted for position in wanted}
    turns: dict[int, int] = {}
    while len(turns) < len(wanted):
        turn = max(turns.values(), default=0) + 1
        free = [p for p in wanted if p not in turns and before[p] <= turns.keys()]
        turns |= dict.fromkeys(free, turn)
    return turns


def verdict(workflow: CompiledWorkflow, snapshot: Snapshot) -> str:
    """What was undone: ``none`` (there was nothing to undo), ``full`` or ``partial``."""
    wanted = undoable(workflow, snapshot)
    final = left_over(workflow, snapshot)
    if not wanted and not final:
        return "none"
    all_undone = all(snapshot.code(step.position) == Code.COMPLETED for step in wanted)
    return "full" if all_undone and not final else "partial"


def has_undone(workflow: CompiledWorkflow, snapshot: Snapshot) -> bool:
    """Whether some step of it has been undone."""
    return any(is_undone(snapshot, step) for step in workflow.compensations)


def left_over(workflow: CompiledWorkflow, snapshot: Snapshot) -> list[StepPlan]:
    """Finished steps that stay done: irreversible ones. A person has to look at them."""
    return [s for s in workflow.forward if s.irreversible and did(snapshot, s.position)]
