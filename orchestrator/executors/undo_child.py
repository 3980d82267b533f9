"""The hidden step type ``undo_child``: a completed child run is undone through its own saga."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.core.errors import ErrorClass, StepError
from orchestrator.core.outcomes import Answer, Failed, Outcome, Succeeded, UndoChildren
from orchestrator.executors.base import StepContext

_UNDONE = frozenset({"full", "none"})


class UndoChildExecutor:
    """Asks the children of the step to undo what they did, and takes over what became of it."""

    queue = "compensation"

    def execute(self, context: StepContext) -> Outcome:
        """Each completed child of the step is told, and waited for."""
        return UndoChildren(name=context.config["workflow"])

    def resume(self, config: Mapping[str, Any], answer: Answer, *, upstream: Any) -> Outcome:
        """Done when each child undid all that it had done; else ``child_failed`` names the others.

        The answer's payload is ``{children: [{id, state, compensation}]}``.
        """
        del upstream
        children = answer.payload["children"]
        left = [child["id"] for child in children if child["compensation"] not in _UNDONE]
        if not left:
            return Succeeded(output={"children": [child["id"] for child in children]})
        message = f"child workflow {config['workflow']} could not be undone wholly, run {left[0]}"
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        details = {"children": left[:50]}
        error = StepError(
            error_class=ErrorClass.CHILD_FAILED, message=message + more, details=details
        )
        return Failed(error=error)
