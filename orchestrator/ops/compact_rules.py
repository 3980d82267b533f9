"""Rules that need the blueprint: the compact state against the rows, starts against needs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from orchestrator.core import saga
from orchestrator.core.compiled import CompiledWorkflow, Join, StepPlan
from orchestrator.core.snapshot import WAIT_CODES, Code, Loop, Snapshot, unpack
from orchestrator.core.states import StepState
from orchestrator.engine.blueprints import compiled
from orchestrator.models import Event, Run, Step
from orchestrator.ops.violation import Violation

_WITHOUT_ROW = frozenset({StepState.BLOCKED, StepState.SKIPPED, StepState.CANCELLED})
_ENDS = frozenset(
    {"step.completed", "step.failed", "step.skipped", "step.timed_out", "step.cancelled"}
)


@dataclass(frozen=True, slots=True)
class _Row:
    key: str
    scope: str
    position: int
    index: int | None
    state: str
    waiting_for: str


def compact_differences(runs: Sequence[UUID]) -> Iterator[Violation]:
    """Where states, the running counter or a loop's counters differ from the step rows."""
    rows = _rows(runs)
    found = Run.objects.filter(pk__in=runs).values_list("pk", "blueprint_id", "compact")
    for run_id, blueprint_id, compact in found.order_by("pk"):
        try:
            snapshot = unpack(compact)
        except ValueError as error:
            yield Violation("compact_state", run_id, "", str(error))
            continue
        for step, words in _differences(compiled(blueprint_id), snapshot, rows[run_id]):
            yield Violation("compact_state", run_id, step, words)


def _rows(runs: Sequence[UUID]) -> Mapping[UUID, list[_Row]]:
    rows: defaultdict[UUID, list[_Row]] = defaultdict(list)
    columns = ("run_id", "key", "scope", "position", "index", "state", "waiting_for")
    for run_id, *row in Step.objects.filter(run__in=runs).values_list(*columns):
        rows[run_id].append(_Row(*row))
    return rows


def _differences(
    workflow: CompiledWorkflow, snapshot: Snapshot, rows: Sequence[_Row]
) -> Iterator[tuple[str, str]]:
    plain = {row.position: row for row in rows if row.index is None}
    for step in workflow.steps:
        words = _difference(snapshot, step.position, plain.get(step.position))
        if words:
            yield step.key, words
    for position, loop in snapshot.loops.items():
        items = [row for row in rows if row.position == position and row.index is not None]
        for words in _loop_differences(loop, items):
            yield workflow.steps[position].key, words
    running = sum(snapshot.code(p) == Code.RUNNING for p in range(len(snapshot.codes)))
    running += sum(loop.running for loop in snapshot.loops.values())
    if running != snapshot.running:
        yield "", f"the running counter is {snapshot.running}, {running} run"


def _difference(snapshot: Snapshot, position: int, row: _Row | None) -> str:
    state = snapshot.state(position)
    if row is None:
        return "" if state in _WITHOUT_ROW else f"{state} in the compact state, without a row"
    if row.state != state:
        return f"{state} in the compact state, {row.state} in its row"
    if state is StepState.WAITING and snapshot.code(position) != WAIT_CODES.get(row.waiting_for):
        return f"waits for {row.waiting_for!r} in its row, for something else in the compact state"
    return ""


def _loop_differences(loop: Loop, items: Sequence[_Row]) -> Iterator[str]:
    states = Counter(row.state for row in items)
    pairs = {
        "running": (loop.running, states["running"]),
        "retrying": (loop.retrying, states["retrying"]),
        "completed": (loop.ok, states["completed"]),
        "failed": (loop.failed, states["failed"] + states["timed_out"]),
        "waiting": (loop.waiting, states["waiting"]),
        "ready": (len(loop.ready) + len(loop.queued), states["ready"]),
    }
    for word, (counted, found) in pairs.items():
        if counted != found:
            yield f"{counted} items {word} in the compact state, {found} in the rows"


def early_starts(runs: Sequence[UUID]) -> Iterator[Violation]:
    """Steps that the history shows to have started before their needs had ended."""
    first: defaultdict[UUID, dict[tuple[str, str], int]] = defaultdict(dict)
    events = Event.objects.filter(run_id__in=runs, type__in=[*_ENDS, "step.started"])
    for run_id, seq, kind, step in events.order_by("run_id", "seq").values_list(
        "run_id", "seq", "type", "step"
    ):
        word = "start" if kind == "step.started" else "end"
        first[run_id].setdefault((word, step), seq)
    for run_id, blueprint_id in Run.objects.filter(pk__in=runs).values_list("pk", "blueprint_id"):
        for step, words in _early(compiled(blueprint_id), first[run_id]):
            yield Violation("needs_first", run_id, step, words)


def _early(
    workflow: CompiledWorkflow, first: Mapping[tuple[str, str], int]
) -> Iterator[tuple[str, str]]:
    for step in workflow.steps:
        started = first.get(("start", step.key))
        if started is None:
            continue
        needs = _needs(workflow, step)
        late = [key for key in needs if first.get(("end", key), started) >= started]
        if len(needs) - len(late) < _least(step, len(needs)):
            yield step.key, f"started at {started}, before {', '.join(late)} had ended"


def _needs(workflow: CompiledWorkflow, step: StepPlan) -> list[str]:
    if step.owner is not None:
        return [workflow.steps[step.owner].key]
    return list(dict.fromkeys(workflow.steps[edge.source].key for edge in step.ins))


def _least(step: StepPlan, n_needs: int) -> int:
    """How many different needs must have ended before the step may start."""
    if step.join is not Join.AT_LEAST or step.owner is not None:
        return n_needs
    return min(step.join_count, n_needs)


def sagas(runs: Sequence[UUID]) -> Iterator[Violation]:
    """Runs that ended without completing, whose undoing is not what the run says of it."""
    ended = Run.objects.filter(pk__in=runs, state__in=("failed", "cancelled", "timed_out"))
    for run_id, blueprint_id, compact, said in ended.values_list(
        "pk", "blueprint_id", "compact", "compensation"
    ):
        try:
            workflow, snapshot = compiled(blueprint_id), unpack(compact)
        except ValueError:
            continue  # told by the rule above
        if saga.due(workflow, snapshot):
            yield Violation("saga_complete", run_id, "", "the run is over with something to undo")
        found = saga.verdict(workflow, snapshot)
        if found != said:
            yield Violation(
                "saga_complete", run_id, "", f"compensation {said!r}, but {found!r} was undone"
            )
