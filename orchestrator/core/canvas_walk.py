"""Which messages a whole workflow travels in, as far as it can be said before it runs.

Every condition is taken as true, every route as chosen and every step as successful; which of them
really are is decided when the run is there. Pure; shown by ``manage.py explain_canvas``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.core.canvas import Canvas, Stretch, compile_canvas, messages
from orchestrator.core.compiled import CompiledWorkflow, StepPlan
from orchestrator.core.decision import Ref

_ANSWERED_FROM_OUTSIDE = frozenset({"human_gate", "wait", "sub_workflow"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """What becomes READY once the steps ``after`` have settled (none: at the start).

    ``goes_on``: what the worker that settled the last of them runs at once, without a message.
    ``covers``: the step that these stand in for when it has given up.
    """

    after: tuple[int, ...]
    goes_on: Stretch | None
    canvases: tuple[Canvas, ...]
    covers: int | None = None


def walk(workflow: CompiledWorkflow, *, fuse: bool = True) -> Iterator[Wave]:
    """The waves in the order in which they may come: every step is in exactly one of them.

    Compensations are not: they come in reverse order of what was done, one by one.
    """
    done: set[int] = set()
    while waiting := [s for s in workflow.forward if s.position not in done]:
        ready = [s for s in waiting if _may_come(s, done)]
        for group in _by_origin(ready):
            wave = _wave(workflow, group, fuse=fuse)
            done |= set(_positions(wave))
            yield wave


def _may_come(step: StepPlan, done: set[int]) -> bool:
    if step.owner is not None:
        return step.owner in done
    return all(edge.source in done for edge in step.ins)


def _by_origin(ready: list[StepPlan]) -> list[list[StepPlan]]:
    """One settle sends what becomes READY by it; fallbacks come by themselves."""
    groups: dict[tuple[int, ...], list[StepPlan]] = {}
    for step in ready:
        origin = (-1, step.position) if step.owner is not None else _sources(step)
        groups.setdefault(origin, []).append(step)
    return list(groups.values())


def _sources(step: StepPlan) -> tuple[int, ...]:
    return tuple(sorted({edge.source for edge in step.ins}))


def _wave(workflow: CompiledWorkflow, group: list[StepPlan], *, fuse: bool) -> Wave:
    first = group[0]
    after = _sources(first) if first.owner is None else (first.owner,)
    rest = sorted(group, key=lambda step: (-step.rank, step.position))
    goes_on = None
    taken = _taken(workflow, rest, after) if fuse else None
    if taken is not None:
        rest.remove(taken)
        (canvas,) = compile_canvas(workflow, [Ref(taken.position)])
        goes_on = next(messages(canvas))
    canvases = compile_canvas(workflow, [Ref(s.position) for s in rest], fuse=fuse) if rest else ()
    return Wave(after=after, goes_on=goes_on, canvases=canvases, covers=first.owner)


def _taken(
    workflow: CompiledWorkflow, group: list[StepPlan], after: tuple[int, ...]
) -> StepPlan | None:
    """The step that the settling worker claims with its settle: it is of the worker's queue."""
    settled = [workflow.steps[position] for position in after]
    queues = {step.queue for step in settled}
    if len(queues) != 1 or any(step.type in _ANSWERED_FROM_OUTSIDE for step in settled):
        return None
    return next((step for step in group if step.queue in queues), None)


def _positions(wave: Wave) -> Iterator[int]:
    stretches = [stretch for canvas in wave.canvases for stretch in messages(canvas)]
    if wave.goes_on is not None:
        stretches.append(wave.goes_on)
    for stretch in stretches:
        yield from (ref.position for ref in stretch.refs)
