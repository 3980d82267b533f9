"""The compact state as bytes."""

from __future__ import annotations

import pytest

from orchestrator.core.snapshot import Code, Loop, Mark, Snapshot, Verdict, unpack


def test_a_snapshot_reads_back_as_it_was_written() -> None:
    snapshot = Snapshot.fresh(3, 2)
    snapshot.codes[1], snapshot.marks[0] = Code.LOOPING, Mark.DEAD
    snapshot.running, snapshot.paused = 2, True
    snapshot.loops[1] = Loop(total=5, released=3, running=2, ready=[2], waits={"person": 1})
    snapshot.held, snapshot.barred = [0], [2]
    snapshot.warnings = [{"step": "a", "error": {"class": "transient", "message": "ü"}}]
    snapshot.verdict = Verdict(state="failed", error={"class": "permanent", "message": "x"})
    assert unpack(snapshot.pack()) == snapshot


def test_a_plain_run_costs_a_byte_a_step_and_a_byte_an_edge() -> None:
    assert len(Snapshot.fresh(2000, 3000).pack()) <= 2000 + 3000 + 16


def test_a_copy_shares_nothing() -> None:
    snapshot = Snapshot.fresh(1, 1)
    snapshot.loops[0] = Loop(total=1)
    copy = snapshot.copy()
    copy.codes[0], copy.loops[0].ready = Code.READY, [0]
    assert snapshot.codes[0] == Code.BLOCKED
    assert snapshot.loops[0].ready == []


def test_another_format_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="format 9"):
        unpack(b"\x09" + Snapshot.fresh(1, 0).pack()[1:])


def test_the_densest_document_that_fits_can_be_stored() -> None:
    """300 steps that need 300 others each: 90,000 edges in less than 1 MiB."""
    snapshot = Snapshot.fresh(600, 90_000)
    assert unpack(snapshot.pack()) == snapshot
