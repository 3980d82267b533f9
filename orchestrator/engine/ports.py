"""What the engine asks of the outside; filled in by ``OrchestratorConfig.ready()``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from orchestrator.core.compiled import CompiledWorkflow
from orchestrator.core.decision import Ref
from orchestrator.models.rows import RunRow

WakeUps = tuple[RunRow, CompiledWorkflow, Sequence[Ref]]
"""A run, its workflow, and the READY work of it that messages are sent for."""


class Dispatcher(Protocol):
    """Sends wake-ups for READY work. Called after commit; must not raise when a broker is away:
    the READY rows are the truth and a sweep sends again."""

    def dispatch(self, run: RunRow, workflow: CompiledWorkflow, refs: Sequence[Ref]) -> None:
        """Send what carries ``refs``, under the run's correlation id and trace."""
        ...

    def dispatch_all(self, orders: Sequence[WakeUps]) -> None:
        """The same for many runs, in as few trips to the broker as can be."""
        ...

    def dispatch_after(
        self,
        commit: Callable[[], None],
        run: RunRow,
        workflow: CompiledWorkflow,
        refs: Sequence[Ref],
    ) -> None:
        """Make what carries ``refs``, call ``commit`` once, then send it.

        ``commit`` waits for the database, so that the making costs no time. It is called even when
        nothing can be made; nothing is sent when it raises, and what it raises is raised.
        """
        ...

    def depth(self, queue: str) -> int:
        """Messages waiting in the queue; 0 also when nobody can tell."""
        ...


class LaneControl(Protocol):
    """Tells a worker in a fused stretch whether to take the next step or to give way."""

    def takes_next(self, own_messages: Callable[[], int]) -> bool:
        """Whether the worker may claim another step in the same transaction. ``own_messages``
        counts the run's own that are on their way to the queue: nobody gives way to those."""
        ...


class _Ports:
    dispatcher: Dispatcher | None = None


def set_dispatcher(dispatcher: Dispatcher) -> None:
    """Name the dispatcher of this process."""
    _Ports.dispatcher = dispatcher


def dispatcher() -> Dispatcher:
    """The dispatcher of this process."""
    if _Ports.dispatcher is None:
        raise RuntimeError("no dispatcher is set: OrchestratorConfig.ready() has not run")
    return _Ports.dispatcher
