"""The values behind a run's expressions, read from stored state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.core import values
from orchestrator.core.compiled import CompiledWorkflow
from orchestrator.models import effect_rows, loops, rows
from orchestrator.models.rows import RunRow


class Values(values.Values):
    """What a stored run's expressions see: its rows, read when something names them."""

    def __init__(self, run: RunRow, workflow: CompiledWorkflow) -> None:
        super().__init__(run, workflow, run.snapshot)
        self.run = run

    def find_outputs(self, positions: set[int]) -> Mapping[int, Any]:
        """In one query."""
        return rows.read_outputs(self.run.id, positions)

    def find_item_outputs(self, key: str) -> list[Any]:
        """From the items' rows."""
        return rows.item_outputs(self.run.id, key)

    def learn_receipt(self, position: int) -> None:
        """The step is being undone: what its effect answered, though a repair has set it back."""
        if position not in self.outputs:
            for response in effect_rows.receipt_of(self.run.id, position):
                self.learn(position, response)

    def find_order(self, positions: Sequence[int]) -> Sequence[int]:
        """By the instant at which each was finished."""
        return rows.completion_order(self.run.id, positions)

    def find_completed_items(self, position: int) -> list[int]:
        """From the items' rows."""
        return loops.completed_items(self.run.id, position)
