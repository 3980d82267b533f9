"""A wave of READY steps and what surely follows, as a small tree of chains and chords.

The tree is a carrier, never the truth: it says which wake-ups travel together. Pure; carried out
by ``orchestrator.tasks.dispatch``, shown by ``manage.py explain_canvas`` (DESIGN section 4).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orchestrator.core.compiled import CompiledWorkflow, Join, On, StepPlan
from orchestrator.core.decision import Ref

MAX_MESSAGES = 16
"""Messages that one canvas may carry; what is beyond is dispatched when it becomes READY."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """One message: the work it names, run one after the other by one worker of ``queue``.

    Only the first is READY when the message is made; the others follow without a decision.
    """

    refs: tuple[Ref, ...]
    queue: str


@dataclass(frozen=True, slots=True)
class Chain:
    """Messages one after the other: the stretch changes its queue."""

    links: tuple[Stretch, ...]


@dataclass(frozen=True, slots=True)
class Chord:
    """Parallel messages whose ends are exactly the needs of one join, which is the body."""

    headers: tuple[Stretch, ...]
    body: Stretch


Canvas = Stretch | Chain | Chord


def compile_canvas(
    workflow: CompiledWorkflow, wave: Sequence[Ref], *, fuse: bool = True
) -> tuple[Canvas, ...]:
    """The trees that carry ``wave``. Every ref of the wave starts exactly one message.

    With ``fuse`` neighbours on one queue share a message; without, every step is its own.
    """
    stretches = {ref: _stretch(workflow, ref) for ref in wave}
    canvases: list[Canvas] = []
    rest = list(wave)
    for body, heads in _joins(workflow, stretches, fuse=fuse):
        headers = tuple(_one_message(workflow, stretches[ref]) for ref in heads)
        canvases.append(Chord(headers, Stretch((Ref(body),), workflow.steps[body].queue)))
        rest = [ref for ref in rest if ref not in heads]
    canvases.extend(_chain(workflow, stretches[ref], fuse=fuse) for ref in rest)
    return tuple(_bounded(canvas) for canvas in canvases)


def carried_keys(workflow: CompiledWorkflow, canvas: Canvas) -> tuple[str, ...]:
    """The keys of the steps that the canvas brings besides its first messages."""
    if isinstance(canvas, Stretch):
        return ()
    later = canvas.links[1:] if isinstance(canvas, Chain) else (canvas.body,)
    return tuple(workflow.steps[link.refs[0].position].key for link in later)


def messages(canvas: Canvas) -> Iterator[Stretch]:
    """Every message of the canvas, in order."""
    match canvas:
        case Stretch():
            yield canvas
        case Chain(links):
            yield from links
        case Chord(headers, body):
            yield from headers
            yield body


def _stretch(workflow: CompiledWorkflow, ref: Ref) -> tuple[Ref, ...]:
    """``ref`` and what follows it without any decision in between."""
    path = [ref]
    if ref.item is not None:
        return tuple(path)
    step = workflow.steps[ref.position]
    while (following := _sure_successor(workflow, step)) is not None:
        path.append(Ref(following.position))
        step = following
    return tuple(path)


def _sure_successor(workflow: CompiledWorkflow, step: StepPlan) -> StepPlan | None:
    """The one step that runs next whatever ``step`` answers, as long as it succeeds."""
    if step.is_decision or len(step.outs) != 1:
        return None
    edge = step.outs[0]
    if edge.when is not None or edge.on not in (On.COMPLETED, On.ANY) or edge.routes is not None:
        return None
    target = workflow.steps[edge.target]
    if len(target.ins) != 1 or target.when is not None or target.owner is not None:
        return None
    return target


def _joins(
    workflow: CompiledWorkflow, stretches: dict[Ref, tuple[Ref, ...]], *, fuse: bool
) -> Iterator[tuple[int, list[Ref]]]:
    """Joins all of whose needs are the tails of stretches in this wave, with the heads."""
    tails = {path[-1].position: ref for ref, path in stretches.items() if ref.item is None}
    seen: set[int] = set()
    for tail in tails:
        step = workflow.steps[tail]
        if step.is_decision or len(step.outs) != 1:
            continue
        join = workflow.steps[step.outs[0].target]
        if join.position in seen or not _is_chord_body(workflow, join, tails):
            continue
        heads = [tails[edge.source] for edge in join.ins]
        if all(_is_one_message(workflow, stretches[head], fuse=fuse) for head in heads):
            seen.add(join.position)
            yield join.position, heads


def _is_chord_body(workflow: CompiledWorkflow, join: StepPlan, tails: dict[int, Ref]) -> bool:
    if not 1 < len(join.ins) < MAX_MESSAGES or join.when is not None or join.owner is not None:
        return False
    if join.join is Join.AT_LEAST:
        return False
    return all(
        edge.source in tails
        and edge.when is None
        and edge.on in (On.COMPLETED, On.ANY)
        and edge.routes is None
        and not workflow.steps[edge.source].is_decision
        for edge in join.ins
    )


def _is_one_message(workflow: CompiledWorkflow, path: tuple[Ref, ...], *, fuse: bool) -> bool:
    """Headers are flat: Celery returns nested ones out of order."""
    if not fuse:
        return len(path) == 1
    return len({workflow.steps[ref.position].queue for ref in path}) == 1


def _one_message(workflow: CompiledWorkflow, path: tuple[Ref, ...]) -> Stretch:
    return Stretch(path, workflow.steps[path[0].position].queue)


def _chain(workflow: CompiledWorkflow, path: tuple[Ref, ...], *, fuse: bool) -> Canvas:
    links: list[list[Ref]] = []
    for ref in path:
        queue = workflow.steps[ref.position].queue
        if fuse and links and workflow.steps[links[-1][0].position].queue == queue:
            links[-1].append(ref)
        else:
            links.append([ref])
    made = tuple(Stretch(tuple(refs), workflow.steps[refs[0].position].queue) for refs in links)
    return made[0] if len(made) == 1 else Chain(made)


def _bounded(canvas: Canvas) -> Canvas:
    if isinstance(canvas, Chain) and len(canvas.links) > MAX_MESSAGES:
        return Chain(canvas.links[:MAX_MESSAGES])
    return canvas
