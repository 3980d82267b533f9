"""One question to a model on behalf of a step, with fail-over along its alias.

The first model that answers is taken. One that is shut (breaker, hold) is passed over, one that
fails in a way that speaks against it is left for the next; what speaks against the request ends it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from orchestrator.adapters.llm import models
from orchestrator.adapters.llm.base import Completion, ModelError, ModelRequest, ToolUse
from orchestrator.adapters.llm.models import Target
from orchestrator.core.errors import ErrorClass, StepError, storable
from orchestrator.core.outcomes import Failed, Usage, Waiting
from orchestrator.executors.base import StepContext
from orchestrator.executors.journal import Turn
from orchestrator.executors.model_desk import CallFailure, Shut

MIN_CALL_S = 0.05
MAX_USES = 16
MAX_NAME = 200
MAX_ARGUMENTS = 100_000
"""Uses in one answer, signs of a name, signs of arguments; what is beyond is not looked at."""


@dataclass(slots=True)
class Stopwatch:
    """The time that an attempt may take, from now on our own monotonic clock: the deadline is on
    the database's, which this machine's need not agree with."""

    allowed_s: float
    began: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, context: StepContext) -> Stopwatch:
        """For the whole attempt; start it with the body."""
        return cls(max(0.0, (context.deadline - context.started_at).total_seconds()))

    def left(self) -> float:
        """Seconds until the attempt's time is over, never negative."""
        return max(0.0, self.allowed_s - (time.monotonic() - self.began))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A model's answer, how long it took, and who was asked or passed over before."""

    completion: Completion
    seconds: float
    before: tuple[str, ...] = ()

    @property
    def usage(self) -> Usage:
        """What the call consumed."""
        return usage_of(self.completion)


def ask_model(
    context: StepContext, request: ModelRequest, watch: Stopwatch
) -> Answered | Failed | Waiting:
    """The answer; the failure of the attempt; or, when every model is shut, the wait for a gate.

    A ``Failed`` of all models has ``details.tried``: ``[{model, class, message}]``.
    """
    found = models.targets(request.model)
    if not found:
        return _permanent(str(models.unknown_model(request.model)))
    asking = _Asking(context, replace(request, tenant=context.tenant), watch)
    for place, target in enumerate(found):
        answer = asking.ask(target, left=len(found) - place)
        if answer is not None:
            return answer
    return asking.gave_up()


@dataclass(slots=True)
class _Asking:
    """One way along an alias."""

    context: StepContext
    request: ModelRequest
    watch: Stopwatch
    shut: list[Shut] = field(default_factory=list)
    errors: list[tuple[str, ModelError]] = field(default_factory=list)
    before: list[str] = field(default_factory=list)

    def ask(self, target: Target, *, left: int) -> Answered | Failed | None:
        """The answer, what ends the attempt, or None: ask the next."""
        shut = self.context.desk.look(target.name)
        if shut is not None:
            self.shut.append(shut)
            self.before.append(f"{target.name}: {shut.why}")
            self.context.desk.passed_over(target.name, shut)
            return None
        self.context.heartbeat()
        began = time.monotonic()
        # The first may not use up what the others need.
        allowed_s = min(target.timeout_s, self.watch.left() / left)
        try:
            completion = self._call(target, allowed_s)
        except ModelError as error:
            return self._note(target, error, time.monotonic() - began, allowed_s)
        self.context.desk.answered(target.name)
        return Answered(
            completion=completion,
            seconds=time.monotonic() - began,
            before=tuple(self.before),
        )

    def _call(self, target: Target, allowed_s: float) -> Completion:
        if allowed_s < MIN_CALL_S:
            raise ModelError(
                f"{target.name}: the attempt's time is over", error_class=ErrorClass.TIMEOUT
            )
        return target.complete(replace(self.request, timeout_s=allowed_s))

    def _note(
        self, target: Target, error: ModelError, seconds: float, allowed_s: float
    ) -> Failed | None:
        self.errors.append((target.name, error))
        self.before.append(str(error))
        self.context.desk.failed(
            target.name,
            CallFailure(
                error=StepError(error_class=error.error_class, message=storable(str(error))),
                retry_after=error.retry_after,
                seconds=seconds,
                allowed_s=allowed_s,
                speaks_against_it=error.elsewhere,
                billed=error.billed,
            ),
        )
        return None if error.elsewhere else _failed(self.errors)

    def gave_up(self) -> Failed | Waiting:
        """Nobody is left to ask. Where all were shut the step waits, and burns no attempt."""
        if not self.errors:
            return Waiting(kind="service", key=self.shut[0].gate, why=self.shut[0].why)
        return _failed(self.errors)


def _failed(errors: Sequence[tuple[str, ModelError]]) -> Failed:
    """The failure of the attempt: of several, one that may be tried again before one that may
    not."""
    told = [error for _, error in errors]
    error = next((e for e in told if e.error_class is not ErrorClass.PERMANENT), told[-1])
    tried = [
        {"model": name, "class": str(each.error_class), "message": storable(str(each))[:300]}
        for name, each in errors
    ]
    said = "; ".join(str(each) for _, each in errors)
    waits = [each.retry_after for _, each in errors if each.retry_after is not None]
    details = {"tried": tried} if len(errors) > 1 or error.elsewhere else None
    return Failed(
        error=StepError(error_class=error.error_class, message=storable(said), details=details),
        retry_after=min(waits) if len(waits) == len(errors) else None,
    )


def model_turn(answer: Answered) -> Turn:
    """The answer as the journal keeps it."""
    completion = answer.completion
    content: dict[str, Any] = {
        "text": completion.text,
        "uses": [_kept(use) for use in completion.uses[:MAX_USES]],
    }
    if len(completion.uses) > MAX_USES:
        content["dropped"] = len(completion.uses) - MAX_USES
    if answer.before:
        content["before"] = list(answer.before)
    return Turn(
        kind="model",
        name=completion.model,
        content=content,
        usage=answer.usage,
        price=completion.price,
        seconds=round(answer.seconds, 3),
    )


def _kept(use: ToolUse) -> dict[str, str]:
    """A use as it is kept. What is cut here is refused anyway."""
    return {
        "id": use.id[:MAX_NAME],
        "name": use.name[:MAX_NAME],
        "arguments": use.arguments[: MAX_ARGUMENTS + 1],
    }


def usage_of(completion: Completion) -> Usage:
    """What the call consumed."""
    return Usage(
        cost_microusd=completion.cost_microusd,
        tokens_in=completion.tokens_in,
        tokens_out=completion.tokens_out,
        model=completion.model,
    )


def _permanent(message: str) -> Failed:
    return Failed(error=StepError(error_class=ErrorClass.PERMANENT, message=message))


def condition_failure(message: str) -> Failed:
    """A step whose expression failed: never read as false, never as empty."""
    return Failed(error=StepError(error_class=ErrorClass.CONDITION_ERROR, message=message))
