"""What a repair leads to, said before anything is written: steps, effects, cost."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.core.compiled import CompiledWorkflow, StepPlan
from orchestrator.core.decision import Decision
from orchestrator.core.effects import EffectStatus
from orchestrator.core.snapshot import ENDED
from orchestrator.engine.repair_order import Order, RepairReport
from orchestrator.models import repair_rows
from orchestrator.models.rows import RunRow

_FATE = {
    EffectStatus.APPLIED: "found",
    EffectStatus.GIVEN_UP: "found",
    EffectStatus.NOT_APPLIED: "called",
    EffectStatus.INTENDED: "looked_up",
    EffectStatus.IN_DOUBT: "looked_up",
}


def foresee(
    run: RunRow, workflow: CompiledWorkflow, order: Order, decision: Decision, *, preview: bool
) -> RepairReport:
    """The report of a decision that is not written yet; its state is where the run will stand."""
    steps = workflow.steps
    again = {*decision.reopened, *decision.again, *decision.loops_again}
    dropped = {p for p in again if p in decision.excused or p in decision.cancelled}
    ran = repair_rows.what_ran(run.id, sorted(again - dropped), decision.loops_again)
    starting = [*decision.again, *decision.loops_again]
    starting += [ref.position for ref in decision.ready if ref.item is None]
    fresh = (steps[p] for p, raw in enumerate(decision.snapshot.codes) if raw not in ENDED)
    unknown = _asks_a_model(step for step in fresh if step.key not in ran.keys)
    return RepairReport(
        action=order.action,
        step=order.step,
        scope=order.scope,
        preview=preview,
        state=str(decision.run_state),
        state_version=run.version,
        reruns=ran.keys,
        starts=[steps[p].key for p in sorted(set(starting))],
        effects=fates(ran.effects),
        cost_microusd=None if unknown else ran.cost_microusd,
    )


def fates(effects: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Keys of effects by what will happen about them, from what is known of each."""
    found: dict[str, list[str]] = {"found": [], "called": [], "looked_up": [], "undone": []}
    for key, status in effects:
        found[_FATE[EffectStatus(status)]].append(key)
    return found


def _asks_a_model(steps: Iterable[StepPlan]) -> bool:
    """Whether some of them have a price that nobody can tell before."""
    return any(
        step.undoes is None
        and (step.type in ("agent", "sub_workflow") or step.config.get("strategy") == "llm")
        for step in steps
    )
