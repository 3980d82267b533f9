"""A second look at conditions: worked out once more, over the outputs that are stored.

Only where the outputs are those of then: a run that was repaired has others. What a repeat saw in
its earlier rounds is gone, so its end is taken as recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from orchestrator.core.compiled import CompiledWorkflow, Edge
from orchestrator.core.decision import Ref
from orchestrator.core.errors import ConditionError
from orchestrator.core.propagation import Conditions
from orchestrator.core.replay_facts import diverge
from orchestrator.core.replay_log import Log
from orchestrator.core.snapshot import Code, Snapshot
from orchestrator.engine.values import Values
from orchestrator.models.rows import RunRow

_DONE = frozenset(map(int, (Code.COMPLETED, Code.COMPENSATING, Code.COMPENSATED)))


class _Then(Values):
    """Outputs of those steps alone that had completed by then."""

    def __init__(self, run: RunRow, workflow: CompiledWorkflow) -> None:
        super().__init__(run, workflow)
        self.covered: set[int] = set()

    def load(self, positions: Iterable[int]) -> None:
        super().load(p for p in positions if self.snapshot.code(p) in _DONE or p in self.covered)

    def output(self, position: int) -> Any:
        self.load([position])
        return self.outputs[position]

    def cover(self, owner: int, fallback: int) -> None:
        del fallback
        self.covered.add(owner)


class DeepConditions:
    """The recorded answers, each compared with what the expression says now."""

    def __init__(
        self, recall: Conditions, log: Log, run: RunRow, workflow: CompiledWorkflow
    ) -> None:
        self.recall, self.log = recall, log
        self.values = _Then(run, workflow)

    def see(self, snapshot: Snapshot) -> None:
        """As the turn goes on changing it."""
        self.recall.see(snapshot)
        self.values.see(snapshot)

    def cover(self, owner: int, fallback: int) -> None:
        """The fallback's output stands for the owner's, in the rows too."""
        self.values.cover(owner, fallback)

    def edge(self, edge: Edge) -> bool:
        """The edge's condition, both ways."""
        words = f"the condition of edge {edge.index}"
        return self._both(words, lambda: self.recall.edge(edge), lambda: self.values.edge(edge))

    def step(self, position: int) -> bool:
        """The step's own condition, both ways."""
        words = f"the condition of step {self.values.workflow.steps[position].key}"
        recall, values = self.recall, self.values
        return self._both(words, lambda: recall.step(position), lambda: values.step(position))

    def until(self, ref: Ref, output: Any) -> bool:
        """As recorded: earlier rounds are gone."""
        return self.recall.until(ref, output)

    def _both(self, words: str, recall: Callable[[], bool], now: Callable[[], bool]) -> bool:
        said, failure = _asked(recall)
        if _asked(now)[0] is not said:
            head = self.log.peek()
            diverge(head, f"{words} to be {_asked(now)[0]} over the stored outputs", head)
        if failure is not None:
            raise failure
        return bool(said)


def _asked(condition: Callable[[], bool]) -> tuple[bool | None, ConditionError | None]:
    try:
        return condition(), None
    except ConditionError as failure:
        return None, failure
