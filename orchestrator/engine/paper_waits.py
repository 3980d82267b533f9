"""What ends a wait on paper: a person, a signal, the clock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from orchestrator.adapters.llm.smallest import smallest_instance
from orchestrator.core.compiled import CompiledWorkflow, StepPlan
from orchestrator.core.outcomes import Answer, Waiting
from orchestrator.core.simulation_answers import Given
from orchestrator.engine.paper_bodies import Recorded, Source

NOBODY = "user:simulated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """An answer ``seconds`` after the wait began, and where it comes from."""

    answer: Answer
    seconds: float
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A wait, and what is known of it. ``usual``: how long it took in earlier runs; ``since``: for
    how many seconds the step waits by now, over all its waits."""

    waiting: Waiting
    step: StepPlan
    workflow: CompiledWorkflow
    given: Given | None
    recorded: Recorded | None
    usual: float
    at: datetime
    since: float


def end_of(asked: Asked) -> Ended | None:
    """What ends the wait; None: nothing ever does.

    A wait that would last beyond its due time ends by the clock.
    """
    waiting, given = asked.waiting, asked.given
    clock = _clock(waiting.due, asked.at)
    if waiting.kind == "timer" or (given is not None and given.never):
        return clock
    answer, source = _answer(asked)
    if answer is None:
        return clock
    after = asked.usual
    if given is not None and given.after is not None:
        after = given.after.total_seconds()
    left = max(0.0, after - asked.since)
    if clock is not None and left > clock.seconds:
        return clock
    return Ended(answer=answer, seconds=left, source=source)


def _clock(due: timedelta | datetime | None, at: datetime) -> Ended | None:
    if due is None:
        return None
    span = due if isinstance(due, timedelta) else due - at
    seconds = max(0.0, span.total_seconds())
    return Ended(answer=Answer(kind="timer"), seconds=seconds, source=Source.COMPUTED)


def _answer(asked: Asked) -> tuple[Answer | None, Source]:
    given, recorded = asked.given, asked.recorded
    match asked.waiting.kind:
        case "person":
            payload, source = _decision(asked.step, given, recorded)
            return Answer(kind="decision", payload=payload), source
        case "signal":
            if given is None and recorded is not None and recorded.output is None:
                return None, Source.RECORDED  # it did not come in time
            payload, source = _payload(asked.waiting, asked.workflow, given, recorded)
            return Answer(kind="signal", payload=payload), source
        case _:  # a service, a budget, a review: nobody on paper can tell
            return None, Source.ASSUMED


def _decision(
    step: StepPlan, given: Given | None, recorded: Recorded | None
) -> tuple[dict[str, Any], Source]:
    if given is not None and given.decision is not None:
        words = {"decision": given.decision, "by": given.by, "notes": given.notes}
        return {**words, "data": given.data}, Source.GIVEN
    known = ("decision", "by", "notes", "data")
    said = None if recorded is None else recorded.output or (recorded.error or {}).get("details")
    if isinstance(said, dict) and "decision" in said:
        return {name: said.get(name) for name in known}, Source.RECORDED
    form = step.config.get("form")
    data = None if form is None else smallest_instance(form)
    return {"decision": "approved", "by": NOBODY, "notes": "", "data": data}, Source.ASSUMED


def _payload(
    waiting: Waiting, workflow: CompiledWorkflow, given: Given | None, recorded: Recorded | None
) -> tuple[Any, Source]:
    if given is not None and given.says("payload"):
        return given.payload, Source.GIVEN
    if recorded is not None:
        return recorded.output, Source.RECORDED
    schema = workflow.signals.get(waiting.key)
    return ({} if schema is None else smallest_instance(schema)), Source.ASSUMED


def assumption(answer: Answer) -> str:
    """What is assumed with it, in words."""
    if answer.kind == "decision":
        return "it is approved"
    return "the signal comes, with the least that its payload may be"
