"""Where a run must stand after its history, compared with the rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.core.compiled import CompiledWorkflow
from orchestrator.core.decision import Ref
from orchestrator.core.replay_log import Difference, name_of
from orchestrator.core.replay_machine import Replay
from orchestrator.core.replay_rows import Row
from orchestrator.core.snapshot import QUEUED, Loop, Mark, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """What stands in the run's row. ``next_seq``: the sequence of the next line."""

    state: str
    waiting_for: str
    outcome: str
    compensation: str
    error: Any
    warnings: Any
    next_seq: int
    snapshot: Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredStep:
    """What stands in the row of a step, or an item."""

    ref: Ref
    state: str
    waiting_for: str
    attempt: int
    n_retries: int
    round: int


def first_difference(
    replay: Replay, run: StoredRun, steps: Iterable[StoredStep]
) -> Difference | None:
    """Where the rows are not what the history comes to; None when they are."""
    for words, expected, recorded in _differences(replay, run, steps):
        if expected != recorded:
            return Difference(
                sequence=0, expected=f"{words} {expected}", recorded=f"{words} {recorded}"
            )
    return None


_Pair = tuple[str, Any, Any]


def _differences(replay: Replay, run: StoredRun, steps: Iterable[StoredStep]) -> Iterator[_Pair]:
    yield "next sequence", replay.log.last + 1, run.next_seq
    yield "run state", str(replay.state), run.state
    yield "waiting_for", replay.waiting_for, run.waiting_for
    yield "outcome", replay.outcome, run.outcome
    yield "compensation", replay.compensation, run.compensation
    yield "error of the run", replay.error, run.error
    yield "warnings", replay.warnings, run.warnings
    yield from _in_compact(replay.workflow, replay.snapshot, run.snapshot)
    yield from _in_steps(replay, {stored.ref: stored for stored in steps})


def _in_compact(workflow: CompiledWorkflow, ours: Snapshot, theirs: Snapshot) -> Iterator[_Pair]:
    """The compact state, but for what is on its way to workers: a carrier's affair."""
    yield "number of steps", len(ours.codes), len(theirs.codes)
    if _codes(ours) != _codes(theirs):
        for step in workflow.steps:
            words = f"state of step {step.key}"
            yield words, ours.code(step.position), theirs.code(step.position)
    if ours.marks != theirs.marks:
        for edge in workflow.edges:
            source, target = workflow.steps[edge.source].key, workflow.steps[edge.target].key
            words = f"edge {source} > {target}"
            yield words, Mark(ours.marks[edge.index]).name, Mark(theirs.marks[edge.index]).name
    yield "running bodies", ours.running, theirs.running
    yield "paused", ours.paused, theirs.paused
    yield "loops", _loops(ours), _loops(theirs)
    for name in ("held", "barred", "reopened", "warnings", "verdict", "undo", "acted"):
        yield name, getattr(ours, name), getattr(theirs, name)


def _codes(snapshot: Snapshot) -> bytes:
    return bytes(code & ~QUEUED for code in snapshot.codes)


def _loops(snapshot: Snapshot) -> dict[int, dict[str, Any]]:
    return {position: _loop(loop) for position, loop in snapshot.loops.items()}


def _loop(loop: Loop) -> dict[str, Any]:
    shape = loop.as_json()
    waits = {kind: n for kind, n in loop.waits.items() if n}
    return {**shape, "ready": sorted(loop.ready + loop.queued), "queued": [], "waits": waits}


def _in_steps(replay: Replay, stored: Mapping[Ref, StoredStep]) -> Iterator[_Pair]:
    known: dict[Ref, Row] = {Ref(position): row for position, row in replay.rows.plain.items()}
    for position, items in replay.rows.items.items():
        known |= {Ref(position, index): row for index, row in items.items()}
    for ref, row in known.items():
        found = stored.get(ref)
        name = name_of(replay.workflow, ref)
        if found is None:
            yield f"step {name}", str(row.state), "no row"
            continue
        yield (
            f"step {name} (state, waits for, attempt, retries, round)",
            (str(row.state), row.waiting_for, row.attempt, row.n_retries, row.round),
            (found.state, found.waiting_for, found.attempt, found.n_retries, found.round),
        )
    for ref in stored.keys() - known.keys():
        yield f"step {name_of(replay.workflow, ref)}", "no row", stored[ref].state
