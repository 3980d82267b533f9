"""What all runs of one simulation share: the tenant, figures, effects on paper, the bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from orchestrator.core.effects import Course, EffectPlan, EffectStatus, StoredEffect, course
from orchestrator.core.simulating import TooLong
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

    def make(self, plan: EffectPlan, output: Any, *, holder: str) -> None:
        """On paper the effect has been made."""
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
