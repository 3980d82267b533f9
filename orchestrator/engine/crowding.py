"""Queues that are too long: what is READY for them waits in its row instead of in the broker."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.conf import engine_settings
from orchestrator.core.gates import crowd_key
from orchestrator.models import gate_rows

_KEPT_S = 10.0
"""How long the word stands when nobody measures any more."""


def note_depths(depths: Mapping[str, int]) -> list[str]:
    """The queues among ``depths`` that are beyond their bound, and everybody told so."""
    most = engine_settings().max_depth_of_queue
    crowded = [queue for queue, depth in depths.items() if depth > most]
    for queue in crowded:
        why = f"{depths[queue]} messages wait in queue {queue}"
        gate_rows.note_crowd(crowd_key(queue), why=why, for_s=_KEPT_S)
    return crowded
