"""What an attempt may answer. Executors return one of these values and never call the engine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from orchestrator.core.errors import ErrorClass, StepError

MAX_WISH_S = 366 * 86_400.0
WaitKind = Literal["person", "signal", "timer", "child", "service", "budget", "review"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What an attempt consumed. ``cost_microusd`` None means: price unknown (never zero)."""

    cost_microusd: int | None = 0
    tokens_in: int = 0
    tokens_out: int = 0
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Succeeded:
    """The step is done; ``output`` is JSON."""

    output: Any
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The attempt failed. ``retry_after`` is the provider's wish, in seconds: what is no wish that
    can be met (not finite, negative) is None, and the longest is a year."""

    error: StepError
    retry_after: float | None = None
    usage: Usage = field(default_factory=Usage)

    def __post_init__(self) -> None:
        object.__setattr__(self, "retry_after", _wish(self.retry_after))

    @property
    def uses_a_retry(self) -> bool:
        """Whether trying again counts among the step's ``max_retries``."""
        return self.error.error_class is not ErrorClass.WORKER_LOST


def _wish(value: object) -> float | None:
    if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        return None
    return min(value, MAX_WISH_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Park the step: no worker and no message is held.

    ``kind`` says for what; ``key`` is the signal's name, or for a person the step key under which
    an early answer is stored. The wait ends by an answer or at ``due`` (a duration from now on
    the database's clock, or an absolute instant); None waits for ever. ``why`` is one sentence.
    """

    kind: WaitKind
    key: str = ""
    due: timedelta | datetime | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartChild:
    """Start the pinned child workflow ``name`` (as written in the document) and wait for it."""

    name: str
    input: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoChildren:
    """Have the completed children of the step that is undone undo what they did, and wait for it.

    ``name`` is the child workflow as written in the document.
    """

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """A router's decision: chosen route ids, and why. ``details`` holds what was weighed."""

    routes: tuple[str, ...]
    why: str
    details: Mapping[str, Any] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRun:
    """The step completes and the whole run completes now with ``outcome`` (a gate's ``end``)."""

    output: Any
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What ended a wait, handed to ``resume``.

    ``kind``: ``signal`` (payload), ``decision`` (``{decision, by, notes, data}``), ``timer``
    (the wait's due time came), ``child`` (``{state, output, error, outcome}``; of children that
    were undone ``{children: [{id, state, compensation}]}``).
    """

    kind: Literal["signal", "decision", "timer", "child"]
    payload: Any = None


Outcome = Succeeded | Failed | Waiting | StartChild | UndoChildren | Routed | EndRun
