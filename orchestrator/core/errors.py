"""The error tree and the closed list of error classes that a step can fail with."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class ErrorClass(StrEnum):
    """Why an attempt failed (FORMAT section 1, ``retry``; section 4 adds the last five)."""

    TIMEOUT = "timeout"
    RATE_LIMIT = "rate_limit"
    TRANSIENT = "transient"
    PERMANENT = "permanent"
    CONDITION_ERROR = "condition_error"
    SCHEMA_ERROR = "schema_error"
    WORKER_LOST = "worker_lost"
    CANCELLED = "cancelled"
    REJECTED = "rejected"
    CHILD_FAILED = "child_failed"
    REPEAT_EXHAUSTED = "repeat_exhausted"
    MIN_SUCCESS = "min_success"


MAX_MESSAGE = 4000


def storable(text: str) -> str:
    """The text as JSON and PostgreSQL can hold it: no NUL, no half surrogate pair, bounded.

    What a provider or an exception said may be anything; it must not cost the worker its life.
    """
    shortened = text[:MAX_MESSAGE].replace("\x00", "\N{REPLACEMENT CHARACTER}")
    return shortened.encode("utf-8", "replace").decode()


CLAIMED_WITH = "claimed_with"
"""In the details of a lost worker's error: with how many others the step was claimed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepError:
    """What went wrong in one attempt; stored on the step and shown to people.

    ``error_class`` decides about retries, ``message`` is safe to show, ``details`` is small JSON.
    """

    error_class: ErrorClass
    message: str
    details: dict[str, Any] | None = None

    @property
    def names_the_lost(self) -> bool:
        """Whether a worker was lost with this step alone in its hands: of several, nobody knows
        which body it was at, and none is blamed."""
        alone = not (self.details or {}).get(CLAIMED_WITH)
        return self.error_class is ErrorClass.WORKER_LOST and alone

    def as_json(self) -> dict[str, Any]:
        """The shape stored in rows and events: ``{class, message[, details]}``."""
        shape: dict[str, Any] = {"class": str(self.error_class), "message": storable(self.message)}
        if self.details:
            shape["details"] = self.details
        return shape


class OrchestratorError(Exception):
    """Root of every error that the engine raises on purpose; ``code`` is stable."""

    code = "orchestrator_error"


class NotFound(OrchestratorError):
    """The run, step or blueprint does not exist (for this tenant)."""

    code = "not_found"


class StateConflict(OrchestratorError):
    """The present state forbids the move; ``state`` names it."""

    code = "state_conflict"

    def __init__(self, message: str, *, state: str, code: str | None = None) -> None:
        super().__init__(message)
        self.state = state
        if code is not None:
            self.code = code


class InvalidRequest(OrchestratorError):
    """Well-formed but refused (unknown signal, payload against its schema, reused id).

    ``problems`` are ``{pointer, code, detail}`` entries, ready for a problem document.
    """

    code = "invalid_request"

    def __init__(
        self, message: str, *, code: str, problems: list[dict[str, str]] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.problems = problems or []


class ConditionError(OrchestratorError):
    """An expression failed, or its value lacks the declared type. Never read as false."""

    code = "condition_error"


class InvariantBroken(OrchestratorError):
    """Stored state contradicts itself; the run is left as it is for a person to look at."""

    code = "invariant_broken"


class Unreadable(InvariantBroken):
    """A stored document or compact state that this build cannot read: nothing can be decided."""

    code = "unreadable"
