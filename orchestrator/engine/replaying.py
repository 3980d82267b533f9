"""Replaying stored runs: histories and rows are read in one instant, and compared. Reads only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from uuid import UUID

from orchestrator.core.compiled import CompiledWorkflow
from orchestrator.core.decision import DECISIONS
from orchestrator.core.errors import OrchestratorError
from orchestrator.core.replay import Wrap, replay
from orchestrator.core.replay_end import first_difference
from orchestrator.core.replay_log import Difference, Diverged, Recorded
from orchestrator.engine.blueprints import compiled
from orchestrator.engine.replay_deep import DeepConditions
from orchestrator.models import histories, rows
from orchestrator.models.histories import Told
from orchestrator.models.statements import one_snapshot

BATCH_RUNS = 200
BATCH_LINES = 50_000
"""A batch is read in one transaction, which should be short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What came of one run. ``difference`` None: identical, unless ``unread`` says why its history
    could not be replayed at all (recorded before replay, or by other rules)."""

    run_id: UUID
    workflow: str
    n_lines: int
    difference: Difference | None = None
    unread: str = ""

    @property
    def identical(self) -> bool:
        """Whether every decision came out as recorded, and the rows are what they lead to."""
        return self.difference is None and not self.unread


def replay_runs(run_ids: Iterable[UUID], *, deep: bool = False) -> Iterator[Replayed]:
    """Replay these runs, in batches by id; runs that are not there are absent.

    ``deep``: conditions are also worked out anew, over the outputs that are stored. Bounded in
    memory: histories are read in pages. Opens short read-only transactions, or joins.
    """
    for batch in _batches(run_ids):
        with one_snapshot():
            told = {run.run_id: run for run in histories.read_told(batch)}
            found = [
                _replayed(told.pop(run_id), lines, deep=deep)
                for run_id, lines in histories.read_histories(batch)
                if run_id in told
            ]
            found += [_replayed(run, iter(()), deep=deep) for run in told.values()]
        yield from found


def replay_run(run_id: UUID) -> Replayed | None:
    """Replay one run; None when there is none."""
    return next(replay_runs([run_id]), None)


def _batches(run_ids: Iterable[UUID]) -> Iterator[list[UUID]]:
    """By number of runs, and of lines: some histories are long."""
    ids = iter(run_ids)
    while some := list(islice(ids, BATCH_RUNS)):
        batch: list[UUID] = []
        n_lines = 0
        for run_id, length in histories.sizes(some):
            if batch and n_lines + length > BATCH_LINES:
                yield batch
                batch, n_lines = [], 0
            batch.append(run_id)
            n_lines += length
        if batch:
            yield batch


def _replayed(told: Told, lines: Iterator[Recorded], *, deep: bool) -> Replayed:
    first = next(lines, None)
    unread = _unread(first)
    difference = None
    n_lines = told.row[-2] - 1
    if not unread:
        try:
            workflow = compiled(told.blueprint_id)
            whole = lines if first is None else chain([first], lines)
            run = replay(workflow, whole, _deeply(told, workflow) if deep else None)
            difference = first_difference(run, told.stored(), told.steps)
        except Diverged as diverged:
            difference = diverged.difference
        except (OrchestratorError, ValueError) as damage:
            difference = Difference(
                sequence=0, expected="rows that can be read", recorded=str(damage)
            )
    return Replayed(
        run_id=told.run_id,
        workflow=told.workflow,
        n_lines=n_lines,
        difference=difference,
        unread=unread,
    )


def _deeply(told: Told, workflow: CompiledWorkflow) -> Wrap | None:
    """Conditions that are asked twice; None for a run whose outputs are not those of then."""
    run = rows.read_run(told.run_id)
    if run is None or histories.was_repaired(told.run_id):
        return None
    return lambda recall, log: DeepConditions(recall, log, run, workflow)


def _unread(first: Recorded | None) -> str:
    """Why a history is not replayed: this build knows the rules of one version."""
    if first is None or first.type != "run.started":
        return ""
    decisions = first.payload.get("decisions")
    if decisions == DECISIONS:
        return ""
    if decisions is None:
        return "its history was recorded before replay was"
    return f"it was decided by rules of version {decisions}, this build has {DECISIONS}"
