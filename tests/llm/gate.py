"""A gate that stands open: its decision is written in the document, in place of a form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.core.outcomes import Answer, Outcome, Succeeded
from orchestrator.executors.base import StepContext


class OpenGate:
    queue = "approval"

    def execute(self, context: StepContext) -> Outcome:
        return Succeeded(output=context.config["form"])

    def resume(self, config: Mapping[str, Any], answer: Answer, *, upstream: Any) -> Outcome:
        raise TypeError("it never waits")
