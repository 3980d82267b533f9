"""Histories that were recorded once must come out the same for ever.

WHEN A TEST HERE FAILS, the code decides otherwise than the code that wrote the history: every run
that is open in somebody's database would go on by other rules than it began with. Do not record
again to get green. Either take the change back, or make it a new version of the decisions:
``orchestrator.core.decision.DECISIONS`` gets the next number, runs of the old number go on being
decided the old way (docs/how-to/replay-and-deploy.md says how), and the new way gets a folder of
golden histories of its own, beside the old ones.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.core.replay import replay
from orchestrator.core.replay_end import first_difference
from orchestrator.core.replay_log import Diverged
from tests.golden import store

FILES = store.files()


def named(file: Path) -> str:
    return f"{file.parent.name}/{file.stem}"


@pytest.mark.parametrize("file", FILES, ids=named)
def test_a_golden_history_comes_out_as_recorded(file: Path) -> None:
    for run in store.read(file):
        workflow = store.workflow_of(run)
        stored, steps = store.end_of(run)
        try:
            difference = first_difference(replay(workflow, store.lines_of(run)), stored, steps)
        except Diverged as diverged:
            difference = diverged.difference
        assert difference is None, f"{file.name}: {difference}\n{__doc__}"


EVENTS = {
    "run.started",
    "run.paused",
    "run.resumed",
    "run.cancelling",
    "run.timing_out",
    "run.completed",
    "run.failed",
    "run.cancelled",
    "run.timed_out",
    "step.ready",
    "step.started",
    "step.completed",
    "step.failed",
    "step.timed_out",
    "step.skipped",
    "step.cancelled",
    "step.waiting",
    "step.expanded",
    "step.repeated",
    "step.reopened",
    "step.retry_scheduled",
    "router.decided",
    "gate.opened",
    "gate.decided",
    "signal.received",
    "timer.set",
    "timer.fired",
    "child.started",
    "child.finished",
    "effect.intended",
    "effect.receipt",
    "effect.in_doubt",
    "effect.not_applied",
    "effect.found",
    "compensation.started",
    "compensation.completed",
    "compensation.failed",
    "repair.retry_step",
    "repair.resume",
    "repair.skip_step",
    "repair.settle_effect",
}
STEP_KINDS = {"agent", "tool", "human_gate", "sub_workflow", "router", "wait"}


def test_the_golden_histories_show_every_kind_of_line_and_step() -> None:
    runs = [run for file in FILES for run in store.read(file)]
    seen = {line[1] for run in runs for line in run["history"]}
    assert sorted(EVENTS - seen) == []
    kinds = {step["type"] for run in runs for step in run["document"]["steps"].values()}
    assert kinds == STEP_KINDS
    joins = {str(step.get("join")) for run in runs for step in run["document"]["steps"].values()}
    assert {"strict", "any"} <= joins
