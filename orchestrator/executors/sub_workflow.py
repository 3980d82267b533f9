"""The step type ``sub_workflow``: a run of its own; the parent sees one step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.core.errors import ErrorClass, StepError
from orchestrator.core.outcomes import Answer, Failed, Outcome, StartChild, Succeeded
from orchestrator.core.states import RunState
from orchestrator.executors.base import StepContext


class SubWorkflowExecutor:
    """Starts the pinned child and takes over what became of it."""

    queue = "subworkflow"

    def execute(self, context: StepContext) -> Outcome:
        """Start the child named in ``workflow`` with the step's input."""
        return StartChild(name=context.config["workflow"], input=context.input)

    def resume(self, config: Mapping[str, Any], answer: Answer, *, upstream: Any) -> Outcome:
        """The child's output, or ``child_failed`` with the child's id, state and error.

        The answer's payload is ``{id, state, output, error, outcome, compensation}``.
        """
        del upstream
        child = answer.payload
        if child["state"] == RunState.COMPLETED:
            return Succeeded(output=child.get("output"))
        return Failed(error=_child_error(config["workflow"], child))


def _child_error(workflow: str, child: Mapping[str, Any]) -> StepError:
    error = child.get("error") or {}
    reason = f": {error['message']}" if error.get("message") else ""
    details = {"child": child.get("id"), "state": child["state"], "error": error or None}
    if child.get("compensation", "none") != "none":
        details["compensation"] = child["compensation"]
    return StepError(
        error_class=ErrorClass.CHILD_FAILED,
        message=f"child workflow {workflow} ended {child['state']}{reason}",
        details=details,
    )
