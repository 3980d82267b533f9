"""How long steps of earlier runs took and what they cost: measured where rows are, in one query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connection

LATEST_RUNS = 100
ROWS_OF_A_RUN = 2000

_FIGURES = """
WITH lately AS (
    SELECT id FROM orchestrator_run
     WHERE tenant = %(tenant)s AND workflow = %(workflow)s AND finished_at IS NOT NULL
       AND id <> ALL(%(without)s)
     ORDER BY id DESC LIMIT %(runs)s
), done AS (
    SELECT s.* FROM lately CROSS JOIN LATERAL (
        SELECT key, extract(epoch FROM finished_at - started_at)::float8 AS seconds,
               cost_microusd, run_id
          FROM orchestrator_step
         WHERE run_id = lately.id AND state IN ('completed', 'compensating', 'compensated')
           AND started_at IS NOT NULL AND finished_at IS NOT NULL AND items_total IS NULL
         LIMIT %(rows)s
    ) s
)
SELECT key, count(DISTINCT run_id), count(*),
       percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY seconds),
       count(cost_microusd),
       percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY cost_microusd::float8)
  FROM done GROUP BY key
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFigures:
    """What one step (an item counts like a step) took in earlier runs: the middle, and what 95 of
    100 stay below. ``seconds`` of a body are those of the attempt that completed, of a gate or a
    wait those until it was over. ``microusd`` None: no run told a price."""

    n_runs: int
    n: int
    seconds: tuple[float, float]
    microusd: tuple[float, float] | None


def step_figures(
    tenant: str, workflow: str, *, without: Sequence[UUID] = ()
) -> dict[str, StepFigures]:
    """By step key, from the latest ended runs of this workflow, of whatever version; ``without``
    leaves runs out."""
    given: dict[str, Any] = {
        "tenant": tenant,
        "workflow": workflow,
        "without": list(without),
        "runs": LATEST_RUNS,
        "rows": ROWS_OF_A_RUN,
    }
    with connection.cursor() as cursor:
        cursor.execute(_FIGURES, given)
        found = cursor.fetchall()
    return {
        key: StepFigures(
            n_runs=n_runs,
            n=n,
            seconds=(seconds[0], seconds[1]),
            microusd=(cost[0], cost[1]) if n_priced else None,
        )
        for key, n_runs, n, seconds, n_priced, cost in found
    }
