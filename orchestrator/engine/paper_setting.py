"""What all runs of one simulation share: the tenant, figures, effects on paper, the bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from orchestrator.core.compiled import StepPlan
from orchestrator.core.effects import (
    Course,
    EffectPlan,
    EffectStatus,
    StoredEffect,
    course,
    given_up_warning,
)
from orchestrator.core.outcomes import Failed, Succeeded
from orchestrator.core.simulating import TooLong
from orchestrator.engine import effects
from orchestrator.engine.paper_bodies import Said
from orchestrator.models import Effect
from orchestrator.models.step_figures import StepFigures, step_figures

MIDDLE, HIGH = 0, 1
"""Which of the figures a run on paper goes by: what half of the earlier runs, or 95 of 100, stay
below."""


@dataclass(slots=True, kw_only=True)
class PaperSetting:
    """``left``: how many answers may still be asked for; ``recorded``: the stored runs whose
    answers are given again, and whose own effects count as not made."""

    tenant: str
    started_at: datetime
    left: int
    pick: int = MIDDLE
    recorded: list[UUID] = field(default_factory=list)
    figures: dict[str, Mapping[str, StepFigures]] = field(default_factory=dict)
    _made: dict[str, StoredEffect] = field(default_factory=dict)
    _own: dict[UUID, frozenset[str]] = field(default_factory=dict)

    def count(self) -> None:
        """Another answer is asked for; TooLong when it is one too many."""
        self.left -= 1
        if self.left < 0:
            raise TooLong

    def of_workflow(self, name: str) -> Mapping[str, StepFigures]:
        """The figures of earlier runs of a workflow, by step key; read once."""
        if name not in self.figures:
            self.figures[name] = step_figures(self.tenant, name, without=self.recorded)
        return self.figures[name]

    # -- effects -------------------------------------------------------------------------------

    def planned(self, plan: EffectPlan) -> EffectPlan:
        """What the attempt would do about its effect, with what this simulation has made so far
        and without what the recorded run made."""
        made = self._made.get(plan.key)
        if made is None and not any(plan.key in self._keys_of(run) for run in self.recorded):
            return plan
        return EffectPlan(
            key=plan.key,
            tool=plan.tool,
            request_hash=plan.request_hash,
            course=Course.CALL if made is None else course(made, plan.request_hash),
            response=None if made is None else made.response,
            holder="" if made is None else made.holder,
        )

    def settled(
        self, step: StepPlan, name: str, plan: EffectPlan, said: Said, assumed: list[str]
    ) -> Said:
        """What the answer means for the effect, as live: made, not made, or in doubt."""
        outcome = said.outcome
        if isinstance(outcome, Succeeded):
            self._make(plan, outcome.output, holder=f"step {name} of this simulation")
            return said
        if not isinstance(outcome, Failed) or (outcome.error.details or {}).get("not_applied"):
            return said
        if effects.may_resend(step):
            return replace(said, in_doubt=plan.key)
        if effects.can_look_up(step):
            assumed.append(f"looking up {plan.key} says that it was not applied")
            return said
        words = outcome.error.message
        found = effects.by_rule(plan.key, step, words)
        given_up = found.effect is not None and found.effect.status is EffectStatus.GIVEN_UP
        warning = given_up_warning(step.key, plan.key, words) if given_up else None
        return replace(said, outcome=found.outcome, warning=warning)

    def _make(self, plan: EffectPlan, output: Any, *, holder: str) -> None:
        self._made[plan.key] = StoredEffect(
            status=EffectStatus.APPLIED,
            request_hash=plan.request_hash,
            response=output,
            busy=False,
            holder=holder,
        )

    def _keys_of(self, run: UUID) -> frozenset[str]:
        if run not in self._own:
            made = Effect.objects.filter(tenant=self.tenant, run_id=run)
            self._own[run] = frozenset(made.values_list("idempotency_key", flat=True))
        return self._own[run]
