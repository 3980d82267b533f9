"""Canvas trees as Celery signatures: chains, chords with flat headers, single messages."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from celery import chain, chord, current_app
from celery.canvas import Signature
from kombu import Producer

from orchestrator.conf import engine_settings
from orchestrator.core.canvas import (
    Canvas,
    Chain,
    Chord,
    Stretch,
    carried_keys,
    compile_canvas,
)
from orchestrator.core.compiled import CompiledWorkflow
from orchestrator.core.decision import Ref
from orchestrator.engine.ports import WakeUps
from orchestrator.models.rows import RunRow
from orchestrator.tasks import post
from orchestrator.tasks.broker import broker_errors
from orchestrator.tasks.depth import queue_depth
from orchestrator.tasks.names import path_of
from orchestrator.tasks.steps import run_step

logger = logging.getLogger(__name__)

Parcels = list[post.Parcel] | None

BATCH = 200
# A chord counts its headers by their results; nothing else stores one.
_WITH_RESULT: dict[str, Any] = {"ignore_result": False}


class CeleryDispatcher:
    """Sends wake-ups through Celery. Fills the engine's ``Dispatcher`` port."""

    def dispatch(self, run: RunRow, workflow: CompiledWorkflow, refs: Sequence[Ref]) -> None:
        """Send what carries ``refs``, in one batch. A broker that is away costs time, never work:
        the READY rows stand in the database and the sweep sends again."""
        self.dispatch_after(_at_once, run, workflow, refs)

    def dispatch_after(
        self,
        commit: Callable[[], None],
        run: RunRow,
        workflow: CompiledWorkflow,
        refs: Sequence[Ref],
    ) -> None:
        """Make the messages where that can be done apart from sending them, commit, then send."""
        made: Parcels | BaseException
        canvases = compile_canvas(workflow, refs, fuse=engine_settings().fuse)
        try:
            made = _parcels(run, workflow, canvases)
        except BaseException as error:  # noqa: BLE001 - it is raised, or told, after the commit
            made = error
        commit()
        try:
            if isinstance(made, BaseException):
                raise made
            _send([(run, workflow, canvases)], [made])
        except broker_errors() as error:
            logger.warning("run %s: wake-ups not sent (%s); the sweep sends again", run.id, error)

    def dispatch_all(self, orders: Sequence[WakeUps]) -> None:
        """Send what carries the work of many runs, in batches; as ``dispatch``."""
        fuse = engine_settings().fuse
        for begin in range(0, len(orders), BATCH):
            part = [
                (run, workflow, compile_canvas(workflow, refs, fuse=fuse))
                for run, workflow, refs in orders[begin : begin + BATCH]
            ]
            try:
                _send(part, [_parcels(*one) for one in part])
            except broker_errors() as error:
                logger.warning(
                    "wake-ups of %s runs not sent (%s); the sweep sends again", len(part), error
                )

    def depth(self, queue: str) -> int:
        """Messages waiting in the queue."""
        return queue_depth(queue)


def _at_once() -> None:
    """It is committed already."""


def _parcels(run: RunRow, workflow: CompiledWorkflow, canvases: Sequence[Canvas]) -> Parcels:
    """The messages, if each stands alone; None: Celery sends them. Raises the broker's errors."""
    if not post.is_open():
        return None
    headers, run_id = headers_of(run), str(run.id)
    parcels = []
    for canvas in canvases:
        if not isinstance(canvas, Stretch):
            return None
        args = [run_id, path_of(workflow, canvas.refs), []]
        parcels.append(post.pack(canvas.queue, args, headers))
    return parcels


def _send(
    trees: Sequence[tuple[RunRow, CompiledWorkflow, Sequence[Canvas]]],
    made: Sequence[Parcels],
) -> None:
    """The messages of each run's trees, as they were ``made``, or by Celery where they were not."""
    ready = [parcel for parcels in made if parcels is not None for parcel in parcels]
    if ready:
        post.send(ready)
    rest = [tree for tree, parcels in zip(trees, made, strict=True) if parcels is None]
    if not rest:
        return
    with current_app.producer_or_acquire() as producer, producer.batch():
        for run, workflow, canvases in rest:
            for canvas in canvases:
                publish(run, workflow, canvas, producer)


def publish(
    run: RunRow, workflow: CompiledWorkflow, canvas: Canvas, producer: Producer | None = None
) -> None:
    """Send one tree."""
    signature(run, workflow, canvas).apply_async(producer=producer, retry=False)


def signature(run: RunRow, workflow: CompiledWorkflow, canvas: Canvas) -> Signature[None]:
    """The Celery form of a tree. Only chord headers store a result."""
    carried = list(carried_keys(workflow, canvas))
    match canvas:
        case Stretch():
            return _message(run, workflow, canvas, carried)
        case Chain(links):
            return chain(
                *(
                    _message(run, workflow, link, _after(workflow, links, n))
                    for n, link in enumerate(links)
                )
            )
        case Chord(headers, body):
            heads = [_message(run, workflow, head, carried).set(**_WITH_RESULT) for head in headers]
            return chord(heads, _message(run, workflow, body, []))


def _after(workflow: CompiledWorkflow, links: Sequence[Stretch], n: int) -> list[str]:
    return [workflow.steps[link.refs[0].position].key for link in links[n + 1 :]]


def _message(
    run: RunRow, workflow: CompiledWorkflow, stretch: Stretch, carried: list[str]
) -> Signature[None]:
    message: Signature[None] = run_step.si(str(run.id), path_of(workflow, stretch.refs), carried)
    return message.set(queue=stretch.queue, headers=headers_of(run))


def headers_of(run: RunRow) -> dict[str, str]:
    """What those who watch the broker, or trace through it, can tell a message's run by.

    ``traceparent`` as W3C Trace Context spells it; Celery's own ``correlation_id`` is the task's.
    """
    headers = {"x-correlation-id": run.correlation_id}
    return headers | {"traceparent": run.traceparent} if run.traceparent else headers
