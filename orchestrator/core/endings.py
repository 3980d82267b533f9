"""What a run's end says of itself: pure, so that a replay says the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.core import saga
from orchestrator.core.compiled import CompiledWorkflow
from orchestrator.core.decision import Decision, EventDraft
from orchestrator.core.errors import ErrorClass, StepError
from orchestrator.core.states import RunState

SUCCEEDED = "succeeded"
MAX_ROUTE = 100
MICRO = 1_000_000
OUTPUT_FAILED = "output: "
"""What the error of a run begins with whose ``output`` could not be worked out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastWords:
    """What the run row and the terminal event get. ``step``: the one that brought the end."""

    error: dict[str, Any] | None
    step: str
    outcome: str
    compensation: str

    def event(self, summary: Mapping[str, Any]) -> dict[str, Any]:
        """The payload of the terminal event."""
        payload: dict[str, Any] = {"summary": summary}
        if self.error is not None:
            payload["error"] = self.error
            if self.step:
                payload["step"] = self.step
        if self.outcome:
            payload["outcome"] = self.outcome
        if self.compensation:
            payload["compensation"] = self.compensation
        return payload


def output_error(failure: str) -> dict[str, Any]:
    """Why a run failed whose ``output`` could not be worked out."""
    message = OUTPUT_FAILED + failure
    return StepError(error_class=ErrorClass.CONDITION_ERROR, message=message).as_json()


def last_words(
    workflow: CompiledWorkflow, decision: Decision, *, output_failure: str = ""
) -> LastWords:
    """How the run ends. ``output_failure``: its ``output`` could not be worked out, which fails a
    run that would have completed; the decision's state is changed accordingly."""
    verdict = decision.snapshot.verdict
    error, step, outcome = None, "", SUCCEEDED
    if verdict is not None:
        error, step, outcome = verdict.error, verdict.step, verdict.outcome
    elif output_failure:
        decision.run_state, outcome = RunState.FAILED, ""
        error = output_error(output_failure)
    undone = ""
    if decision.run_state is not RunState.COMPLETED or saga.has_undone(workflow, decision.snapshot):
        undone = saga.verdict(workflow, decision.snapshot)
    return LastWords(error=error, step=step, outcome=outcome, compensation=undone)


@dataclass(slots=True)
class Tally:
    """What a history has come to: the plain steps that completed, in order (at most 100), the
    lines by type, and the known cost."""

    route: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    cost_microusd: int = 0

    def add(self, workflow: CompiledWorkflow, drafts: Iterable[EventDraft], *, cost: int) -> None:
        """These lines follow, with what the step behind them cost."""
        self.cost_microusd += cost
        for draft in drafts:
            self.counts[draft.type] = self.counts.get(draft.type, 0) + 1
            if draft.type == "step.completed" and draft.ref and draft.ref.item is None:
                step = workflow.steps[draft.ref.position]
                if step.undoes is None and len(self.route) < MAX_ROUTE:
                    self.route.append(step.key)

    def copy(self) -> Tally:
        """One that may go on by itself."""
        return Tally(list(self.route), dict(self.counts), self.cost_microusd)


def summary(
    workflow: CompiledWorkflow, decision: Decision, tally: Tally, *, cost: int
) -> dict[str, Any]:
    """FORMAT section 4, Completion: from what the history held before this decision (``tally``),
    the decision's own events and what its step cost."""
    whole = tally.copy()
    whole.add(workflow, decision.events, cost=cost)
    total = whole.counts
    return {
        "route": whole.route,
        "waits": total.get("step.waiting", 0),
        "retries": total.get("step.retry_scheduled", 0),
        "repairs": sum(n for name, n in total.items() if name.startswith("repair.")),
        "effects": total.get("effect.receipt", 0),
        "compensations": total.get("compensation.completed", 0),
        "cost_usd": whole.cost_microusd / MICRO,
    }
