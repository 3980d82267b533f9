"""One call of a model on behalf of a step, with its errors and its cost in the engine's words."""

from __future__ import annotations

from orchestrator.adapters.llm.base import Completion, ModelError, ModelRequest
from orchestrator.adapters.llm.models import complete
from orchestrator.core.errors import ErrorClass, StepError
from orchestrator.core.outcomes import Failed, Usage
from orchestrator.executors.base import StepContext


def call_model(request: ModelRequest) -> Completion | Failed:
    """The model's answer, or the failure of the attempt."""
    try:
        return complete(request)
    except ModelError as error:
        return Failed(
            error=StepError(error_class=error.error_class, message=str(error)),
            retry_after=error.retry_after,
        )


def usage_of(completion: Completion) -> Usage:
    """What the call consumed."""
    return Usage(
        cost_microusd=completion.cost_microusd,
        tokens_in=completion.tokens_in,
        tokens_out=completion.tokens_out,
        model=completion.model,
    )


def seconds_allowed(context: StepContext) -> float:
    """The whole length of this attempt; the model call is all that happens in it."""
    return max(0.0, (context.deadline - context.started_at).total_seconds())


def condition_failure(message: str) -> Failed:
    """A step whose expression failed: never read as false, never as empty."""
    return Failed(error=StepError(error_class=ErrorClass.CONDITION_ERROR, message=message))
