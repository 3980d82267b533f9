"""The engine's own way with an effect, asked again and again with what the outside has said so far.

``apply_effect`` runs to its end in one go; the world stops it at each word with the outside. So
it is called anew with the answers known by then, and says what it wants next by ``Asks``.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from orchestrator.authoring import ToolContext, tool
from orchestrator.core.compiled import CompiledWorkflow
from orchestrator.core.effects import Course, EffectPlan
from orchestrator.core.errors import ErrorClass, StepError
from orchestrator.core.outcomes import Failed, Outcome, Succeeded
from orchestrator.engine.effects import Answered, apply_effect, of_lost
from orchestrator.executors.base import StepContext

KEY, REQUEST = "pay", "hash"
ANSWER = {"external_ref": "R"}
KEYED, KEYLESS, ASKABLE = "model.keyed", "model.keyless", "model.askable"


class Asks(BaseException):
    """The body, or the look-up, turns to the outside and waits: ``call`` or ``look``."""


class _Script:
    """What the outside has said so far; one more word than that raises ``Asks``."""

    said: Iterator[str] = iter(())

    def word(self, kind: str) -> str:
        found = next(self.said, None)
        if found is None:
            raise Asks(kind)
        return found


_script = _Script()


def _look_up(ctx: ToolContext) -> dict[str, str] | None:
    return ANSWER if _script.word("look") == "yes" else None


@tool(KEYED, idempotent=True)
def keyed(ctx: ToolContext) -> dict[str, str]:
    raise NotImplementedError("the world calls by itself")


@tool(KEYLESS)
def keyless(ctx: ToolContext) -> dict[str, str]:
    raise NotImplementedError("the world calls by itself")


@tool(ASKABLE, reconcile=_look_up)
def askable(ctx: ToolContext) -> dict[str, str]:
    raise NotImplementedError("the world calls by itself")


def _call() -> Outcome:
    match _script.word("call"):
        case "ok":
            return Succeeded(output=ANSWER)
        case "refused":
            return _failed("refused", not_applied=True)
        case _:
            return _failed("no answer", not_applied=False)


def _failed(words: str, *, not_applied: bool) -> Failed:
    details = {"not_applied": True} if not_applied else None
    error = StepError(error_class=ErrorClass.TRANSIENT, message=words, details=details)
    return Failed(error=error)


class Engine:
    """The engine's decisions about the effect of one workflow's steps, each worked out once."""

    def __init__(self, workflow: CompiledWorkflow) -> None:
        self.workflow = workflow
        self.next_word = lru_cache(maxsize=None)(self._next_word)
        self.loss = lru_cache(maxsize=None)(self._loss)

    def _next_word(self, step: int, course: str, said: tuple[str, ...]) -> str | Answered:
        """What the attempt does next: a word with the outside, or its answer."""
        plan = EffectPlan(
            key=KEY, tool="t", request_hash=REQUEST, course=Course(course), response=ANSWER
        )
        config = self.workflow.steps[step].config
        _script.said = iter(said)
        try:
            return apply_effect(plan, self.workflow.steps[step], _context(config), _call)
        except Asks as asks:
            return str(asks)

    def _loss(self, step: int, holds: bool) -> Answered:
        """What the reaper answers for an attempt whose worker was lost."""
        error = StepError(error_class=ErrorClass.WORKER_LOST, message="lost")
        failure = Failed(error=error)
        return (
            of_lost(self.workflow.steps[step], KEY, failure) if holds else Answered(outcome=failure)
        )


def _context(config: Any) -> StepContext:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return StepContext(
        run_id="r",
        tenant="t",
        workflow="w",
        version=1,
        actor="a",
        correlation_id="c",
        traceparent="",
        step_key="a",
        item_scope="",
        attempt=1,
        fence=1,
        config=config,
        input={},
        scope={},
        render=lambda value, **_: value,
        idempotency_key=KEY,
        deadline=now,
        started_at=now,
        heartbeat=lambda: None,
    )
