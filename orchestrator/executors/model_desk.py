"""What keeps a model from being asked, and who hears how a call of it went."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from orchestrator.core.errors import StepError


@dataclass(frozen=True, slots=True, kw_only=True)
class Shut:
    """A model may not be asked now: the gate that it stands behind, and why, in one sentence."""

    gate: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFailure:
    """A call of a model gave no answer. ``allowed_s`` is what it was given, ``seconds`` what it
    took. ``billed``: it may be on the bill all the same."""

    error: StepError
    retry_after: float | None
    seconds: float
    allowed_s: float
    speaks_against_it: bool
    billed: bool


class ModelDesk(Protocol):
    """Breakers and holds of models, each by ``provider:model``; it writes what it hears into the
    history."""

    def look(self, model: str) -> Shut | None:
        """Why the model may not be asked now; None: go on."""
        ...

    def passed_over(self, model: str, shut: Shut) -> None:
        """It was not asked, and another was to be."""
        ...

    def answered(self, model: str) -> None:
        """It answered."""
        ...

    def failed(self, model: str, failure: CallFailure) -> None:
        """It did not."""
        ...


class OpenDesk:
    """Every model may be asked, and nobody keeps count."""

    def look(self, model: str) -> Shut | None:
        """See ``ModelDesk``."""
        del model
        return None

    def passed_over(self, model: str, shut: Shut) -> None:
        """See ``ModelDesk``."""

    def answered(self, model: str) -> None:
        """See ``ModelDesk``."""

    def failed(self, model: str, failure: CallFailure) -> None:
        """See ``ModelDesk``."""
