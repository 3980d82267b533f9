"""The saga ledger of a run: what was done outside, what was undone, what a person has to settle.

Reading only: four queries whatever the run's size, none where no step can have an entry.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db.models import F

from orchestrator.core import saga
from orchestrator.core.compiled import CompiledWorkflow, StepPlan
from orchestrator.core.effects import EffectStatus
from orchestrator.core.states import StepState
from orchestrator.core.undo_steps import UNDO_CHILD
from orchestrator.engine.blueprints import compiled
from orchestrator.models import DeadLetter, Effect, Run, Step

MAX_SAGA_LINES = 500
_S = StepState
_UNSURE = frozenset({EffectStatus.INTENDED, EffectStatus.IN_DOUBT})
_BY_UNDO = {
    _S.COMPLETED: "undone",
    _S.FAILED: "not_undone",
    _S.TIMED_OUT: "not_undone",
}
_BEGUN_NOT = frozenset({_S.BLOCKED, _S.READY, _S.SKIPPED})


@dataclass(frozen=True, slots=True, kw_only=True)
class SagaLine:
    """One finished or begun step that acts outside, or can be undone.

    ``state``: ``done``, ``under_way``, ``unknown`` (nobody knows yet whether it happened),
    ``given_up`` (nobody will), ``not_done``, ``undoing``, ``undone``, ``not_undone`` (its
    compensation gave up), ``irreversible`` (done for good). ``turn``: its place in the order of
    undoing, from 1; equal: side by side; None: nothing undoes it. ``attempts`` and ``at`` are the
    compensation's once it has begun, else the step's. ``task``: the dead letter that waits for a
    person.
    """

    step: str
    scope: str
    state: str
    effect_key: str
    compensation_key: str
    external_ref: str
    attempts: int
    at: datetime | None
    why: str
    turn: int | None
    task: int | None


class _Known(NamedTuple):
    rows: Sequence[Step]
    undo: Mapping[tuple[int, int | None], Step]
    effects: Mapping[UUID, Effect]
    tasks: Mapping[UUID, DeadLetter]


def saga_ledger(run: Run) -> list[SagaLine]:
    """The run's ledger in the order of undoing, then what nothing undoes; at most
    ``MAX_SAGA_LINES`` lines."""
    workflow = compiled(run.blueprint_id)
    acting = _acting(workflow)
    if not acting:
        return []
    known = _known(run, workflow, acting)
    turns = saga.layers(workflow)
    lines = [
        _line(workflow.steps[row.position], row, known, turns.get(row.position))
        for row in known.rows
        if row.state not in _BEGUN_NOT
    ]
    lines.sort(key=lambda line: (line.turn is None, line.turn or 0))
    return lines[:MAX_SAGA_LINES]


def _acting(workflow: CompiledWorkflow) -> set[int]:
    """The steps that a ledger can tell of."""
    undone = {step.undoes for step in workflow.compensations if step.undoes is not None}
    acting = {s.position for s in workflow.forward if s.effect_key is not None or s.irreversible}
    return acting | undone


def _known(run: Run, workflow: CompiledWorkflow, acting: set[int]) -> _Known:
    of = {step.position: step.undoes for step in workflow.compensations}
    rows = _rows(run, acting, MAX_SAGA_LINES)
    undoing = _rows(run, of.keys(), MAX_SAGA_LINES + len(of))
    undo = {(undone, row.index): row for row in undoing if (undone := of[row.position]) is not None}
    letters = DeadLetter.objects.filter(
        run=run, retried_at=None, settled_at=None, reason__in=("compensation", "irreversible")
    )
    return _Known(
        rows=rows,
        undo=undo,
        effects={e.step_id: e for e in Effect.objects.filter(run=run).defer("response")},
        tasks={letter.step_id: letter for letter in letters},
    )


def _rows(run: Run, positions: Collection[int], limit: int) -> list[Step]:
    light = ("id", "type", "key", "scope", "position", "index", "state", "attempt", "finished_at")
    wanted = Step.objects.filter(run=run, position__in=positions).only(*light, "why", "error")
    return list(wanted.order_by("position", F("index").asc(nulls_first=True))[:limit])


def _line(step: StepPlan, row: Step, known: _Known, turn: int | None) -> SagaLine:
    effect = known.effects.get(row.id)
    undo = _undo(row, known)
    back = known.effects.get(undo.id) if undo is not None else None
    told = undo if undo is not None and undo.attempt else row
    task = known.tasks.get(row.id) or (known.tasks.get(undo.id) if undo is not None else None)
    return SagaLine(
        step=row.key,
        scope=row.scope,
        state=_state(step, row, effect, undo),
        effect_key=effect.idempotency_key if effect is not None else "",
        compensation_key=back.idempotency_key if back is not None else "",
        external_ref=effect.external_ref if effect is not None else "",
        attempts=told.attempt,
        at=told.finished_at,
        why=_why(told, effect, task),
        turn=turn,
        task=task.pk if task is not None else None,
    )


def _undo(row: Step, known: _Known) -> Step | None:
    """What undoes the row, once that has begun; all children of a for_each are undone by one."""
    own, whole = known.undo.get((row.position, row.index)), known.undo.get((row.position, None))
    if own is None and whole is not None and whole.type == UNDO_CHILD:
        return whole
    return own


def _state(step: StepPlan, row: Step, effect: Effect | None, undo: Step | None) -> str:
    state = StepState(row.state)
    if state is _S.COMPENSATED:
        return "undone"
    if state is _S.COMPENSATING:
        return "undoing"
    if undo is not None:  # a step that did not complete, and still did something, keeps its state
        return _BY_UNDO.get(StepState(undo.state), "undoing")
    if effect is not None and EffectStatus(effect.status) in _UNSURE:
        return "under_way" if state in (_S.RUNNING, _S.RETRYING) else "unknown"
    if effect is not None and effect.status == EffectStatus.GIVEN_UP:
        return "given_up"
    if state is _S.COMPLETED:
        return "irreversible" if step.irreversible else "done"
    applied = effect is not None and effect.status == EffectStatus.APPLIED
    return "done" if applied else _unfinished(state)


def _unfinished(state: StepState) -> str:
    under_way = (_S.RUNNING, _S.RETRYING, _S.WAITING)
    return "under_way" if state in under_way else "not_done"


def _why(told: Step, effect: Effect | None, task: DeadLetter | None) -> str:
    """One sentence, where there is something to say."""
    if task is not None:
        return str(task.error.get("message", ""))
    if told.why:
        return told.why
    if effect is not None and effect.reason:
        return effect.reason
    return str((told.error or {}).get("message", ""))
