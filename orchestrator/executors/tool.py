"""The step type ``tool``: call a registered function, bounded and with its errors mapped."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from orchestrator.adapters import secrets
from orchestrator.authoring import (
    ArgumentMismatch,
    EffectInDoubt,
    Permanent,
    RateLimited,
    ToolSpec,
    Transient,
    UnknownTool,
    registry,
)
from orchestrator.core.errors import ErrorClass, StepError
from orchestrator.core.literals import not_literal
from orchestrator.core.outcomes import Answer, Failed, Outcome, Succeeded, Waiting
from orchestrator.executors.base import StepContext, ToolRequest
from orchestrator.executors.json_output import NotJson, output_error, plain_json

logger = logging.getLogger(__name__)

MAX_MESSAGE_LENGTH = 1000
# Errors of our own code: tried again like any other, but they say nothing about a service.
_DEFECTS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    NotImplementedError,
    TypeError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """The ``ToolContext`` of one attempt. ``doubts``: why calls it made wait for a person."""

    step: StepContext
    deadline: datetime
    allowed_s: float
    began: float = field(default_factory=time.monotonic)
    doubts: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, step: StepContext, spec: ToolSpec) -> ToolCall:
        """The call of ``spec`` in this attempt: the tool's own time limit may shorten the step's.

        Time is counted from now on a monotonic clock: the deadline is on the database's clock,
        which this machine's need not agree with.
        """
        deadline = step.deadline
        if spec.timeout is not None:
            deadline = min(deadline, step.started_at + timedelta(seconds=spec.timeout))
        allowed_s = (deadline - step.started_at).total_seconds()
        return cls(step=step, deadline=deadline, allowed_s=allowed_s)

    @property
    def idempotency_key(self) -> str | None:
        """The declared effect key."""
        return self.step.idempotency_key

    @property
    def run_id(self) -> str:
        """The run."""
        return self.step.run_id

    @property
    def attempt(self) -> int:
        """The attempt, from 1."""
        return self.step.attempt

    @property
    def tenant(self) -> str:
        """Whose run it is."""
        return self.step.tenant

    @property
    def actor(self) -> str:
        """Who started the run."""
        return self.step.actor

    @property
    def correlation_id(self) -> str:
        """The caller's id for the affair."""
        return self.step.correlation_id

    @property
    def traceparent(self) -> str:
        """The W3C trace context."""
        return self.step.traceparent

    def secret(self, name: str) -> str:
        """The value of a secret; ``Permanent`` when it is not set."""
        return secrets.store.read(tenant=self.step.tenant, name=name)

    def heartbeat(self) -> None:
        """Say that the work goes on."""
        self.step.heartbeat()

    def call_tool(
        self,
        name: str,
        input: Any,  # noqa: A002 - the word of the contract
        effect_key: str | None = None,
        *,
        on_doubt: Literal["review", "resend"] = "review",
    ) -> Any:
        """The other tool's output; see ``ToolContext``."""
        request = ToolRequest(tool=name, input=input, effect_key=effect_key, on_doubt=on_doubt)
        outcome = self.step.call_tool(request)
        match outcome:
            case Succeeded(output=output):
                return output
            case Waiting(why=why):
                self.doubts.append(why)
                raise EffectInDoubt(why)
            case Failed():
                raise _raised(outcome)
            case _:
                raise TypeError(f"tool {name} answered {type(outcome).__name__}")

    def time_left(self) -> float:
        """Seconds until the deadline, never negative."""
        return max(0.0, self.allowed_s - (time.monotonic() - self.began))


class ToolExecutor:
    """Calls the function registered under the step's ``tool``.

    A ``Failed`` whose ``error.details["not_applied"]`` is true promises that no effect happened;
    without it the effect of a tool that is not idempotent is in doubt.
    """

    queue = "tool"

    def execute(self, context: StepContext) -> Outcome:
        """The function's JSON, or the failure that its exception means."""
        try:
            spec = registry.get(context.config["tool"])
        except UnknownTool as error:
            return _not_applied(ErrorClass.PERMANENT, str(error))
        if spec.effect == "required" and context.idempotency_key is None:
            return _not_applied(
                ErrorClass.PERMANENT,
                f"tool {spec.name} needs an effect key: give the step effect: {{key: …}}",
            )
        loose = not_literal(context.config.get("input"), spec.literal)
        if loose:
            return _not_applied(
                ErrorClass.PERMANENT,
                f"tool {spec.name} takes {', '.join(loose)} from the document as it is",
            )
        return _checked(_call(spec, context), context.config.get("output_schema"))

    def resume(self, config: Mapping[str, Any], answer: Answer, *, upstream: Any) -> Outcome:
        """A tool never waits for an answer."""
        del config, upstream
        raise TypeError(f"a tool step takes no answer, but got one of kind {answer.kind}")


def _raised(failed: Failed) -> Exception:
    """The failure of a call, as its tool raised it."""
    error, words = failed.error, failed.error.message
    if error.error_class is ErrorClass.RATE_LIMIT:
        return RateLimited(words, retry_after=failed.retry_after)
    if error.error_class is ErrorClass.TRANSIENT:
        certain = bool((error.details or {}).get("not_applied"))
        return Transient(words, failed.retry_after, not_applied=certain)
    return Permanent(words)


def _call(spec: ToolSpec, context: StepContext) -> Outcome:
    call = ToolCall.of(context, spec)
    outcome = _answer(spec, context, call)
    # A person must find out, even where the body went on as if nothing had been in doubt.
    return Waiting(kind="review", why=call.doubts[0]) if call.doubts else outcome


def _answer(spec: ToolSpec, context: StepContext, call: ToolCall) -> Outcome:
    try:
        return Succeeded(output=spec.call(call, context.input))
    except ArgumentMismatch as error:
        return _not_applied(
            ErrorClass.SCHEMA_ERROR,
            f"input does not fit tool {spec.name}: {error}",
            problems=error.problems,
        )
    except RateLimited as error:
        return _not_applied(ErrorClass.RATE_LIMIT, str(error), retry_after=error.retry_after)
    except Permanent as error:
        return _not_applied(ErrorClass.PERMANENT, str(error))
    except Transient as error:
        details = {"not_applied": True} if error.not_applied else None
        return _failed(
            ErrorClass.TRANSIENT, str(error), details=details, retry_after=error.retry_after
        )
    except Exception as error:  # the author may raise anything; the log keeps the traceback
        logger.warning(
            "tool %s raised in run %s, step %s%s, attempt %d",
            spec.name,
            context.run_id,
            context.step_key,
            context.item_scope,
            context.attempt,
            exc_info=True,
        )
        # A plain ValueError complains of the input; what an answer brings has classes of its own.
        is_defect = isinstance(error, _DEFECTS) or type(error) is ValueError
        details = {"defect": True} if is_defect else None
        return _failed(ErrorClass.TRANSIENT, f"{type(error).__name__}: {error}", details=details)


def _checked(outcome: Outcome, schema: Mapping[str, Any] | None) -> Outcome:
    if not isinstance(outcome, Succeeded):
        return outcome
    try:
        output = plain_json(outcome.output)
    except NotJson as error:
        return _failed(ErrorClass.SCHEMA_ERROR, f"the tool's output is not JSON: {error}")
    breach = output_error(output, schema)
    return Succeeded(output=output) if breach is None else Failed(error=breach)


def _not_applied(
    error_class: ErrorClass,
    message: str,
    *,
    retry_after: float | None = None,
    problems: list[dict[str, str]] | None = None,
) -> Failed:
    details: dict[str, Any] = {"not_applied": True}
    if problems:
        details["problems"] = problems[:20]
    return _failed(error_class, message, details=details, retry_after=retry_after)


def _failed(
    error_class: ErrorClass,
    message: str,
    *,
    details: dict[str, Any] | None = None,
    retry_after: float | None = None,
) -> Failed:
    error = StepError(error_class=error_class, message=_printable(message), details=details)
    return Failed(error=error, retry_after=retry_after)


def _printable(message: str) -> str:
    """A message that can be stored and shown: no NUL, no half surrogates, bounded."""
    shortened = message[:MAX_MESSAGE_LENGTH].replace("\x00", "\N{REPLACEMENT CHARACTER}")
    return shortened.encode("utf-8", "replace").decode()
