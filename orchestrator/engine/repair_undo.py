"""An operator has one finished step undone: what it leads to, and what is said beforehand."""

from __future__ import annotations

from orchestrator.core import undoing
from orchestrator.core.compiled import CompiledWorkflow, StepPlan
from orchestrator.core.decision import Decision
from orchestrator.core.errors import ConditionError, StateConflict
from orchestrator.engine.repair_order import Order, RepairReport, refused
from orchestrator.engine.repair_preview import fates
from orchestrator.engine.values import Values
from orchestrator.models import repair_rows
from orchestrator.models.rows import RunRow


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
