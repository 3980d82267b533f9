"""An operator has one finished step undone: what it leads to, and what is said beforehand."""

from __future__ import annotations

from orchestrator.core import saga, undoing
from orchestrator.core.compiled import CompiledWorkflow, StepPlan
from orchestrator.core.decision import Decision
from orchestrator.core.errors import ConditionError, StateConflict
from orchestrator.core.undo_steps import UNDO, UNDO_CHILD
from orchestrator.engine.blueprints import compiled
from orchestrator.engine.repair_order import Order, RepairReport, refused
from orchestrator.engine.repair_preview import fates
from orchestrator.engine.values import Values
from orchestrator.models import family_rows, repair_rows, rows
from orchestrator.models.rows import RunRow

MAX_CHILDREN = 50


def decide_undo(
    run: RunRow, workflow: CompiledWorkflow, values: Values, order: Order
) -> tuple[Decision, RepairReport]:
    """The decision, and its report; nothing is written. StateConflict says what forbids it."""
    if order.scope:
        raise refused("scope", "a for_each is undone as a whole: leave the scope away")
    if run.ended and run.parent_id is not None and not repair_rows.parent_is_over(run.id):
        raise StateConflict(
            f"the run has told its parent {run.parent_id} what it did, and that goes on from it:"
            " undo that run's step",
            state=run.state,
            code="child_run",
        )
    position = order.position(workflow)
    decision = undoing.compensate_step(
        workflow,
        run.snapshot,
        values,
        position,
        state=run.state,
        with_dependents=bool(order.details.get("with_dependents")),
    )
    return decision, _report(run, workflow, values, order, decision)


def _report(
    run: RunRow, workflow: CompiledWorkflow, values: Values, order: Order, decision: Decision
) -> RepairReport:
    undo = decision.snapshot.undo
    positions = undo.steps if undo is not None else []
    compensations = [step for step in workflow.compensations if step.undoes in positions]
    ran = repair_rows.what_ran(run.id, [step.position for step in compensations], [])
    done = repair_rows.what_ran(run.id, positions, [])
    effects = fates(ran.effects)
    known = {key for key, _ in ran.effects}
    effects["called"] += [k for k in _keys(values, compensations) if k not in known]
    effects["undone"] += [key for key, status in done.effects if status == "applied"]
    _add_children(run, [s.key for s in compensations if s.type == UNDO_CHILD], effects)
    return RepairReport(
        action=order.action,
        step=order.step,
        scope=order.scope,
        state=str(decision.run_state),
        state_version=run.version,
        reruns=ran.keys,
        starts=[workflow.steps[ref.position].key for ref in decision.ready]
        + [workflow.steps[position].key for position in decision.again],
        undoes=[workflow.steps[position].key for position in positions],
        stays=[
            workflow.steps[position].key
            for position in undoing.staying(workflow, run.snapshot, positions)
        ],
        effects=effects,
        cost_microusd=ran.cost_microusd,
    )


def _add_children(run: RunRow, keys: list[str], effects: dict[str, list[str]]) -> None:
    """What the children of these hidden steps undo by their own sagas, and their children in turn;
    of the first ``MAX_CHILDREN`` of each step."""
    for key in keys:
        asked = [c for c in family_rows.children_of(run.id, key.removeprefix(UNDO)) if c.stands]
        for child in asked[:MAX_CHILDREN]:
            found = rows.read_run(child.id)
            if found is not None:
                _add_child(found, effects)


def _add_child(run: RunRow, effects: dict[str, list[str]]) -> None:
    workflow = compiled(run.blueprint_id)
    undos = saga.standing(workflow, run.snapshot)
    done = repair_rows.what_ran(run.id, [s.undoes for s in undos if s.undoes is not None], [])
    effects["undone"] += [key for key, status in done.effects if status == "applied"]
    effects["called"] += _keys(Values(run, workflow), undos)
    _add_children(run, [s.key for s in undos if s.type == UNDO_CHILD], effects)


def _keys(values: Values, compensations: list[StepPlan]) -> list[str]:
    """The keys under which the compensations will be called, as far as they can be told."""
    keys = []
    for step in compensations:
        if step.effect_key is None:
            continue
        try:
            keys.append(str(values.rendered(step.effect_key)))
        except ConditionError:
            continue  # it will fail for the same reason, and say so
    return keys
