"""The strongest proof of the recording: whatever a test did, its runs can be decided anew."""

from __future__ import annotations

from orchestrator.engine.replaying import replay_runs
from orchestrator.ops.invariants import newest_runs


def differences(limit: int = 1000) -> list[str]:
    """What is not identical among the newest runs, in words."""
    return [
        f"{found.run_id} {found.unread or found.difference}"
        for found in replay_runs(newest_runs(limit))
        if not found.identical
    ]


def assert_replays(limit: int = 1000) -> None:
    differing = differences(limit)
    assert not differing, differing
