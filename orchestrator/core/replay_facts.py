"""From recorded lines back to the fact that they followed from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from orchestrator.core.compiled import CompiledWorkflow, Edge, StepPlan
from orchestrator.core.decision import Ref
from orchestrator.core.effects import given_up_warning
from orchestrator.core.errors import ConditionError, ErrorClass, StepError
from orchestrator.core.outcomes import (
    EndRun,
    Failed,
    Outcome,
    Routed,
    StartChild,
    Succeeded,
    UndoChildren,
    Waiting,
)
from orchestrator.core.replay_log import Difference, Diverged, Log, Recorded, shown
from orchestrator.core.settling import Expanded
from orchestrator.core.snapshot import Snapshot
from orchestrator.core.undo_steps import UNDO

EFFECT_ENDS = frozenset(
    {
        "effect.receipt",
        "effect.found",
        "effect.in_doubt",
        "effect.not_applied",
        "effect.given_up",
    }
)
GATE = "gate.decided"
CHILD = "child workflow "
UNDONE = " is undone"
_LOOK_AHEAD = 100_000


@dataclass(slots=True, kw_only=True)
class Settled:
    """What one attempt, or wait, answered as the lines tell it. ``n_before``: how many lines stand
    before those that planning answers; ``gate`` says whether a decision of people is among them."""

    outcome: Outcome | Expanded
    n_before: int
    gate: bool
    jitter: float = 0.0
    warning: dict[str, Any] | None = None

    @property
    def lost(self) -> bool:
        """Whether the attempt's worker was lost, and by this step."""
        return isinstance(self.outcome, Failed) and self.outcome.error.names_the_lost


def main_line(log: Log, n_before: int) -> tuple[Recorded, int, list[Recorded]]:
    """The line that says what became of a step, behind what stands before it: the end of its
    effect, a person's decision."""
    before: list[Recorded] = []
    line = log.peek(n_before)
    while line is not None and (line.type in EFFECT_ENDS or line.type == GATE):
        before.append(line)
        line = log.peek(n_before + len(before))
    if line is None:
        diverge(before[-1] if before else log.peek(0), "what became of the step", None)
    return line, n_before + len(before), before


def read_settled(log: Log, step: StepPlan, n_before: int) -> Settled:
    """What the lines say that the step answered."""
    line, n, before = main_line(log, n_before)
    given_up = next((b for b in before if b.type == "effect.given_up"), None)
    warning = None
    if given_up is not None:
        payload = given_up.payload
        warning = given_up_warning(step.key, payload["key"], payload.get("reason", ""))
    outcome = _outcome(line, _asked(log))
    if outcome is None:
        diverge(line, f"what became of step {step.key}", line)
    return Settled(
        outcome=outcome,
        n_before=n,
        gate=any(b.type == GATE for b in before),
        jitter=line.payload.get("jitter", 0.0),
        warning=warning,
    )


def _asked(log: Log) -> Mapping[str, Any]:
    head = log.peek(0)
    asked = None if head is None else head.payload.get("asked")
    return asked if isinstance(asked, dict) else {}


def diverge(at: Recorded | None, expected: str, recorded: Recorded | None) -> NoReturn:
    """Raise Diverged."""
    sequence = at.seq if at is not None else 0
    difference = Difference(sequence=sequence, expected=expected, recorded=shown(recorded))
    raise Diverged(difference)


def error_of(line: Recorded) -> StepError:
    """The error as it was recorded."""
    error = line.payload.get("error") or {}
    try:
        error_class = ErrorClass(error["class"])
    except (KeyError, ValueError):
        diverge(line, "an error of a known class", line)
    return StepError(
        error_class=error_class, message=error["message"], details=error.get("details")
    )


def _outcome(line: Recorded, asked: Mapping[str, Any]) -> Outcome | Expanded | None:
    """The answer that the line tells of; None: it tells of none. Outputs stay unknown."""
    payload = line.payload
    match line.type:
        case "step.completed" if payload.get("ends_run"):
            return EndRun(output=None, outcome=payload["ends_run"])
        case "step.completed" | "step.repeated":
            return Succeeded(output=None)
        case "step.failed" if "until" in asked:  # the body succeeded, its repeat's condition failed
            return Succeeded(output=None)
        case "step.failed" | "step.timed_out" | "step.retry_scheduled":
            return Failed(error=error_of(line), retry_after=payload.get("retry_after"))
        case "router.decided":
            return _routed(payload)
        case "step.expanded":
            return Expanded(total=payload["items"])
        case _:
            return _stay(line)


def _routed(payload: dict[str, Any]) -> Routed:
    known = ("routes", "why", "asked")
    details = {name: value for name, value in payload.items() if name not in known}
    return Routed(routes=tuple(payload["routes"]), why=payload["why"], details=details)


def _stay(line: Recorded) -> Outcome | None:
    payload = line.payload
    match line.type:
        case "step.waiting" if line.step.startswith(UNDO) and payload["waiting_for"] == "child":
            name = payload["why"].removeprefix(CHILD).removesuffix(UNDONE)
            return UndoChildren(name=name)
        case "step.waiting" if payload["waiting_for"] == "child":
            return StartChild(name=payload["why"].removeprefix(CHILD), input=None)
        case "step.waiting":
            return Waiting(kind=payload["waiting_for"], why=payload["why"])
        case "step.cancelled":  # the run is ending, and it would have stayed
            return Waiting(kind="timer")
        case _:
            return None


_ANSWERS = frozenset(
    {
        "step.completed",
        "step.repeated",
        "step.failed",
        "step.timed_out",
        "step.retry_scheduled",
        "step.waiting",
        "step.cancelled",
        "step.expanded",
        "router.decided",
    }
)
SETTLES = _ANSWERS | EFFECT_ENDS | {GATE}
"""Lines that an answered step begins with."""


class Recall:
    """What conditions said, as recorded (``core.propagation.Conditions``)."""

    def __init__(self, workflow: CompiledWorkflow, log: Log) -> None:
        self.workflow, self.log = workflow, log

    def see(self, snapshot: Snapshot) -> None:
        """What they saw is not looked at."""

    def cover(self, owner: int, fallback: int) -> None:
        """Outputs are not looked at."""

    def edge(self, edge: Edge) -> bool:
        """What the edge's condition said."""
        steps = self.workflow.steps
        words = f"the condition on {steps[edge.source].key} of step {steps[edge.target].key}"
        return self._said(f"e{edge.index}", words, edge.target)

    def step(self, position: int) -> bool:
        """What the step's own condition said."""
        words = f"the condition of step {self.workflow.steps[position].key}"
        return self._said(f"s{position}", words, position)

    def until(self, ref: Ref, output: Any) -> bool:  # noqa: ARG002 - the Protocol's
        """What the end of the round said."""
        words = f"the end of the repeat of step {self.workflow.steps[ref.position].key}"
        return self._said("until", words, ref.position)

    def _said(self, name: str, words: str, position: int) -> bool:
        asked = _asked(self.log)
        if name not in asked:
            diverge(self.log.peek(0), f"{words} to be asked ({name})", self.log.peek(0))
        answer = asked[name]
        if answer is None:
            raise ConditionError(self._message(position))
        return bool(answer)

    def _message(self, position: int) -> str:
        """The failure's words stand with the step that it failed."""
        key = self.workflow.steps[position].key
        for ahead in range(_LOOK_AHEAD):
            line = self.log.peek(ahead)
            if line is None:
                break
            if line.type == "step.failed" and line.step.partition("[")[0] == key:
                return str(line.payload.get("error", {}).get("message", ""))
        return ""
