"""What no database can hold becomes its step's failure; it is never met again and again.

A claim or a settle that the database refuses because of a *value* (a NUL, half a character, a
number out of range, a text too long, a constraint) would be refused each time. So it is written
again with a plain failure in place of the value, and retries, fallback and saga follow as after
any failure. What the database refuses for another reason (it is away, a deadlock, a guard) is not
looked at here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any, TypeVar

import orjson
from django.db import DatabaseError, DataError

from orchestrator.core.admission import Lane
from orchestrator.core.effects import EffectEnd, EffectStatus
from orchestrator.core.errors import ErrorClass, OrchestratorError, StepError, storable
from orchestrator.core.outcomes import (
    EndRun,
    Failed,
    Outcome,
    Routed,
    StartChild,
    Succeeded,
    Usage,
    Waiting,
)
from orchestrator.core.settling import Expanded, NotBegun
from orchestrator.engine.patience import outlast
from orchestrator.engine.work import Answer, Work
from orchestrator.executors.json_output import NotJson, plain_json
from orchestrator.models.statements import TooLarge

logger = logging.getLogger(__name__)

# Data exceptions, broken constraints, limits of the server: the same values are refused again.
_OF_VALUES = ("22", "23", "54")
_WORDS = {
    "22P05": "a text holds a NUL character",
    "22021": "a text is no valid UTF-8",
    "22001": "a text is too long for its place",
    "22003": "a number is out of range",
    "22008": "an instant is out of range",
    "22015": "a length of time is out of range",
    "54000": "it is too large for the database",
    "54001": "it is nested too deep",
}
_MAX_WORDS = 300
_MAX_COUNT = 2**53

Result = TypeVar("Result")


class Unwritable(OrchestratorError):
    """Not even the plain failure could be written: a person has to look."""

    code = "unwritable"


def why_unwritable(error: BaseException) -> str | None:
    """Why the database (or our JSON) refused a value, in words that repeat nothing of it; None
    when the error is of another kind."""
    match error:
        case TooLarge():
            return _WORDS["54000"]
        case UnicodeEncodeError():
            return "a text holds half a surrogate pair"
        case orjson.JSONEncodeError():
            return storable(str(error))[:_MAX_WORDS]  # names a type, never a value
        case OverflowError():
            return "a number or a time is out of range"
        case DatabaseError():
            return _why_refused(error)
        case _:
            return None


def _why_refused(error: DatabaseError) -> str | None:
    state = getattr(error.__cause__, "sqlstate", None)
    if state is None:
        return "a value has no form in SQL" if isinstance(error, DataError) else None
    if not state.startswith(_OF_VALUES):
        return None
    return _WORDS.get(state, f"the database refused it (SQLSTATE {state})")


def refusal(what: str, why: str) -> StepError:
    """The failure that stands in for what could not be stored."""
    return StepError(error_class=ErrorClass.PERMANENT, message=f"{what} could not be stored: {why}")


def or_refused(act: Callable[[StepError | None], Result], what: str) -> Result:
    """``act(None)``; when it cannot be written, ``act`` again with the failure to write instead.

    ``act`` opens its own transaction (or savepoint). Raises Unwritable when that is refused too.
    """
    try:
        return act(None)
    except Exception as error:
        why = why_unwritable(error)
        if why is None:
            raise
        logger.error("%s could not be stored (%s); a failure is stored instead", what, why)
    try:
        return act(refusal(what, why))
    except Exception as error:
        again = why_unwritable(error)
        if again is None:
            raise
        raise Unwritable(f"{what} could not be stored, nor could its failure: {again}") from None


Settle = Callable[[Work, Answer, Lane], Work | None]


def settle_or_fail(settle: Settle, work: Work, answer: Answer, lane: Lane) -> Work | None:
    """Settle, outlasting a database that is away. What cannot be written is tried without the next
    claim, which may be what is refused, and then as the attempt's failure.

    Raises the database's error when that is refused too: the lease runs out, and after three
    losses the step is quarantined.
    """
    try:
        return outlast(partial(settle, work, answer, lane))
    except Exception as error:
        why = why_unwritable(error)
        if why is None:
            raise
        logger.error("the settle of step %s cannot be written: %s", work.row.id, why)
    alone = replace(lane, takes_next=False)
    if lane.takes_next:
        work.values.see(work.run.snapshot)
        try:
            return outlast(partial(settle, work, answer, alone))
        except Exception as error:
            why = why_unwritable(error)
            if why is None:
                raise
    failed = as_failure(work, answer, why)
    work.owes_input = False
    work.values.see(work.run.snapshot)
    return outlast(partial(settle, work, failed, alone))


def as_failure(work: Work, answer: Answer, why: str) -> Answer:
    """The answer as the failure to store it. What became of an effect stays known as far as it
    can: one that was applied has no receipt without its response, so it is in doubt."""
    error = refusal("what the step answered", _place(work, answer.outcome) or why)
    failed = Failed(error=error, usage=_sound(getattr(answer.outcome, "usage", Usage())))
    effect = answer.effect
    if effect is None or effect.already:
        return Answer(outcome=failed, effect=effect)
    if effect.status is EffectStatus.NOT_APPLIED:
        return Answer(outcome=failed, effect=EffectEnd(key=effect.key, status=effect.status))
    words = "it was applied; " if effect.status is EffectStatus.APPLIED else ""
    doubt = EffectEnd(
        key=effect.key, status=EffectStatus.IN_DOUBT, reason=f"{words}{error.message}"
    )
    return Answer(outcome=failed, effect=doubt)


def _place(work: Work, outcome: Outcome | Expanded | NotBegun) -> str | None:
    """Where in the answer the fault lies, by pointer; None when it is no fault of JSON."""
    parts = _parts(outcome)
    if work.owes_input:
        parts = {**parts, "input": work.prepared.input}
    if isinstance(outcome, Expanded):
        parts = {**parts, "items": work.prepared.items}
    for name, value in parts.items():
        try:
            plain_json(value)
        except NotJson as fault:
            return storable(f"{name}{fault}")[:_MAX_WORDS]
    return None


def _parts(outcome: Outcome | Expanded | NotBegun) -> Mapping[str, Any]:
    match outcome:
        case Succeeded(output=output):
            return {"output": output}
        case EndRun(output=output, outcome=word):
            return {"output": output, "outcome": word}
        case Routed(routes=routes, why=why, details=details):
            return {"routes": routes, "why": why, "details": dict(details)}
        case Waiting(key=key, why=why):
            return {"key": key, "why": why}
        case StartChild(input=data):
            return {"input of the child": data}
        case Failed(error=error):
            return {"details": error.details}
        case _:
            return {}


def _sound(usage: Usage) -> Usage:
    """The usage, if it can be counted; else its price is unknown."""
    numbers = (usage.cost_microusd or 0, usage.tokens_in, usage.tokens_out)
    try:
        plain_json(asdict(usage))
    except NotJson:
        return Usage(cost_microusd=None)
    counts = all(0 <= n < _MAX_COUNT for n in numbers)
    return usage if counts and len(usage.model or "") <= 100 else Usage(cost_microusd=None)
