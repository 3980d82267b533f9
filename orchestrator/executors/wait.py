"""The step type ``wait``: a time or a signal; nothing is held while it waits."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from orchestrator.core.durations import parse_duration
from orchestrator.core.errors import ConditionError, ErrorClass, StepError
from orchestrator.core.outcomes import Answer, Failed, Outcome, Succeeded, Waiting
from orchestrator.executors.base import StepContext


class WaitExecutor:
    """Parks the step: ``for`` a duration, ``until`` an instant, or for a ``signal``."""

    queue = "engine"

    def execute(self, context: StepContext) -> Outcome:
        """What to wait for, and until when."""
        config = context.config
        if config.get("signal") is not None:
            return _for_signal(config)
        try:
            return _for_time(context)
        except (ConditionError, ValueError) as error:
            return Failed(
                error=StepError(error_class=ErrorClass.CONDITION_ERROR, message=str(error))
            )

    def resume(self, config: Mapping[str, Any], answer: Answer, *, upstream: Any) -> Outcome:
        """A signal's payload; ``{}`` when the time came; what ``on_timeout`` says when it was late.

        The payload was checked against ``schema`` at the door.
        """
        del upstream
        if answer.kind == "signal":
            return Succeeded(output=answer.payload)
        if config.get("signal") is None:
            return Succeeded(output={})
        if config.get("on_timeout") == "continue":
            return Succeeded(output=None)
        message = f"signal {config['signal']} did not come within {config['timeout']}"
        return Failed(error=StepError(error_class=ErrorClass.TIMEOUT, message=message))


def _for_signal(config: Mapping[str, Any]) -> Waiting:
    name, timeout = config["signal"], config.get("timeout")
    due = None if timeout is None else parse_duration(timeout)
    limit = "" if timeout is None else f", at most {timeout}"
    return Waiting(kind="signal", key=name, due=due, why=f"Waiting for signal {name}{limit}.")


def _for_time(context: StepContext) -> Waiting:
    length = context.config.get("for")
    if length is not None:
        return Waiting(kind="timer", due=parse_duration(length), why=f"Waiting for {length}.")
    instant = _instant(context.render(context.config["until"]))
    return Waiting(kind="timer", due=instant, why=f"Waiting until {instant.isoformat()}.")


def _instant(value: Any) -> datetime:
    instant = value if isinstance(value, datetime) else _parsed(value)
    if instant.tzinfo is None:
        raise ValueError(f"until: {value!r} has no time zone; write it like 2030-01-31T09:00:00Z")
    try:
        return instant.astimezone(UTC)  # what UTC has no year for, nobody can read back
    except OverflowError:
        raise ValueError(f"until: {value!r} lies outside the years 1 to 9999") from None


def _parsed(value: Any) -> datetime:
    try:
        return datetime.fromisoformat(str(value))
    except ValueError:
        raise ValueError(
            f"until: {value!r} is no instant; write it like 2030-01-31T09:00:00Z"
        ) from None
