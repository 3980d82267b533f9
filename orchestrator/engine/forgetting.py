"""Receipts are kept for ever, or for as long as a setting says; then the oldest are forgotten."""

from __future__ import annotations

from orchestrator.conf import engine_settings
from orchestrator.models.forgetting import forget_effects


def forget_old_effects(*, batch: int = 1000, batches: int = 100) -> int:
    """Delete settled receipts of runs that ended longer ago than ``effect_retention``; how many.

    Bounded: a round looks at ``batch * batches`` rows at most, each batch is a commit of its own.
    Does nothing without the setting. What was forgotten can happen again under the same key.
    """
    keep = engine_settings().effect_retention
    if keep is None:
        return 0
    count, after = 0, 0
    for _ in range(batches):
        window = forget_effects(keep, after_id=after, limit=batch)
        count += window.n_deleted
        after = window.last_id
        if not window.more:
            break
    return count
