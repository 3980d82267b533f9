"""Rows on paper: what a worker would read of a step, made from what planning keeps of it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from orchestrator.core.compiled import StepPlan
from orchestrator.core.decision import Ref
from orchestrator.core.replay_rows import Row
from orchestrator.engine.change import scope_of
from orchestrator.models.rows import StepRow

NO_ROW = UUID(int=0)


def step_row(step: StepPlan, ref: Ref, row: Row, *, item: Any, previous: Any) -> StepRow:
    """The row of a step, or of an item, that is stored nowhere."""
    return StepRow(
        id=NO_ROW,
        key=step.key,
        scope=scope_of(ref.item),
        position=ref.position,
        index=ref.item,
        state=row.state,
        waiting_for=row.waiting_for,
        waiting_key="",
        attempt=row.attempt,
        n_retries=row.n_retries,
        n_lost=row.n_lost,
        round=row.round,
        fence=0,
        input=None,
        item=item,
        previous=previous,
        timeout_at=None,
        started_at=None,
        worker="",
        queue=step.queue,
    )
