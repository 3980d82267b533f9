"""The two sides of every ratio, with one face: start a run of a shape, hold and release workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID, uuid4

from celery import Celery, chain, chord, group
from celery.canvas import Signature
from celery.utils.nodenames import gethostname, nodename

from bench import documents, workers
from bench.marks import wait_until
from bench.plain import Layout, heavy_late, work_late
from bench.plain import app as plain_app
from config.celery import app as product_app
from orchestrator import engine
from orchestrator.models import Run

TOOL_QUEUE = "tool"


class Side(Protocol):
    """Something that runs no-op work in a shape."""

    name: str

    def start(self, shape: str) -> str:
        """Start a run; its key, 32 hex digits, as the bodies mark it."""
        ...

    def hold(self) -> None:
        """Its workers take no new message until ``release``."""
        ...

    def release(self) -> None:
        """Its workers go on."""
        ...

    def await_ends(self, keys: Sequence[str]) -> None:
        """Return when everything about these runs is written, beyond the last body."""
        ...

    def explain(self, key: str) -> str:
        """What is known of a run that did not come to its end."""
        ...


class Ours:
    """The product, started through the engine's face."""

    def __init__(self) -> None:
        self.name = "orchestrator"
        self._blueprints = {shape: documents.register(shape) for shape in documents.BODIES}

    def start(self, shape: str, given: Mapping[str, Any] | None = None) -> str:
        """A run by ``engine.start_run``; ``given`` is its input (none)."""
        run_id = engine.start_run(
            tenant=documents.TENANT,
            blueprint=self._blueprints[shape],
            workflow=f"bench_{shape}",
            version=1,
            input=dict(given or {}),
            actor="bench",
        )
        return run_id.hex

    def hold(self) -> None:
        """The workers of the tool queue cancel their consumer."""
        _consume(product_app, TOOL_QUEUE, workers.tool_names(), wanted=False)

    def release(self) -> None:
        """They consume again."""
        _consume(product_app, TOOL_QUEUE, workers.tool_names(), wanted=True)

    def await_ends(self, keys: Sequence[str]) -> None:
        """Every run is over in the database."""
        open_runs = Run.objects.filter(pk__in=[UUID(key) for key in keys], finished_at=None)
        wait_until(lambda: not open_runs.exists(), "runs to end", every=0.002)

    def explain(self, key: str) -> str:
        """The run's state, and its steps by state."""
        run = Run.objects.get(pk=UUID(key))
        steps = Counter(run.steps.values_list("state", flat=True))
        odd = run.steps.exclude(state="completed").values_list("key", "scope", "error")[:5]
        return f"The run is {run.state} ({run.error}), its steps {dict(steps)}: {list(odd)}"


class Plain:
    """Plain Celery in one layout."""

    def __init__(self, layout: Layout) -> None:
        self.name = layout.name
        self._layout = layout

    def start(self, shape: str) -> str:
        """The same shape as a canvas: a chain, or one task followed by a chord."""
        key = uuid4().hex
        noop = self._layout.task.si(key).set(queue=self._layout.queue)
        if shape in ("alternating", "mixed"):
            chain(
                *(self._of_two(key, shape, n) for n in range(documents.BODIES[shape]))
            ).apply_async()
        elif shape == "work":
            work = work_late.si(key).set(queue=self._layout.queue)
            chain(work, work.clone()).apply_async()
        elif shape in documents.WIDTHS:
            middle = group(noop.clone() for _ in range(documents.WIDTHS[shape]))
            chain(noop.clone(), chord(middle, noop.clone())).apply_async()
        else:
            chain(*(noop.clone() for _ in range(documents.BODIES[shape]))).apply_async()
        return key

    def _of_two(self, key: str, shape: str, number: int) -> Signature[None]:
        """One step of a chain over two queues."""
        if not documents.is_other(shape, number):
            return self._layout.task.si(key).set(queue=self._layout.queue)
        if shape == "mixed":
            heavy: Signature[None] = heavy_late.si(key, documents.HEAVY_MS)
            return heavy.set(queue=self._layout.other_queue)
        return self._layout.task.si(key).set(queue=self._layout.other_queue)

    def hold(self) -> None:
        """Its workers cancel their consumer."""
        names = workers.plain_names(self._layout)
        _consume(plain_app, self._layout.queue, names, wanted=False)

    def release(self) -> None:
        """They consume again."""
        names = workers.plain_names(self._layout)
        _consume(plain_app, self._layout.queue, names, wanted=True)

    def await_ends(self, keys: Sequence[str]) -> None:
        """Nothing is left to wait for: the last body's end is taken as the end."""
        del keys

    def explain(self, key: str) -> str:
        """Celery keeps no account of a canvas."""
        del key
        return "A message was lost, or the workers hang."


def _consume(app: Celery, queue: str, names: Sequence[str], *, wanted: bool) -> None:
    nodes = [nodename(name, gethostname()) for name in names]
    control = app.control
    command = control.add_consumer if wanted else control.cancel_consumer
    answers = command(queue, destination=nodes, reply=True, timeout=5, limit=len(nodes))
    if len(answers) != len(nodes):
        raise RuntimeError(f"of {nodes} only {answers} answered about queue {queue}")
