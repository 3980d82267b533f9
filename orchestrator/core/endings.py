"""What a run's end says of itself: pure, so that a replay says the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.core import saga
from orchestrator.core.compiled import CompiledWorkflow
from orchestrator.core.decision import Decision
from orchestrator.core.errors import ErrorClass, StepError
from orchestrator.core.states import RunState

SUCCEEDED = "succeeded"
MAX_ROUTE = 100
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


def counted(
    workflow: CompiledWorkflow, decision: Decision, route: Sequence[str], counts: Mapping[str, int]
) -> dict[str, Any]:
    """The summary without its price (FORMAT section 4, Completion), from what the history held
    before this decision and the decision's own events."""
    total, way = dict(counts), list(route)
    for draft in decision.events:
        total[draft.type] = total.get(draft.type, 0) + 1
        if draft.type == "step.completed" and draft.ref and draft.ref.item is None:
            step = workflow.steps[draft.ref.position]
            way.extend([step.key] if step.undoes is None else [])
    return {
        "route": way[:MAX_ROUTE],
        "waits": total.get("step.waiting", 0),
        "retries": total.get("step.retry_scheduled", 0),
        "repairs": sum(n for name, n in total.items() if name.startswith("repair.")),
        "effects": total.get("effect.receipt", 0),
        "compensations": total.get("compensation.completed", 0),
    }
