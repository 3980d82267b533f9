"""The port to language models: one question in, one answer with its cost out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from orchestrator.core.errors import ErrorClass, OrchestratorError


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One answer that is allowed, and when it is right."""

    id: str
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One question to a model.

    ``model`` is an alias or ``provider:model``. With ``output_schema`` the answer's text is to be
    a JSON value that fits it; with ``choices`` the answer is to name ids, joined by commas.
    ``workflow`` and ``step`` say who asks (for traces and for the offline demo).
    """

    model: str
    prompt: str
    system: str = ""
    output_schema: Mapping[str, Any] | None = None
    choices: tuple[Choice, ...] = ()
    max_tokens: int | None = None
    temperature: float | None = None
    timeout_s: float = 60.0
    workflow: str = ""
    step: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A model's answer. ``cost_microusd`` None means: price unknown (never zero)."""

    text: str
    model: str
    tokens_in: int
    tokens_out: int
    cost_microusd: int | None


class ModelError(OrchestratorError):
    """A call that gave no answer.

    Providers map a time-out to ``timeout``, 429 to ``rate_limit``, 5xx and lost connections to
    ``transient`` and every other 4xx to ``permanent``. ``retry_after`` is in seconds.
    """

    code = "model_error"

    def __init__(
        self, message: str, *, error_class: ErrorClass, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.error_class = error_class
        self.retry_after = retry_after


class ModelProvider(Protocol):
    """One provider of models. Never retries by itself: attempts are counted by the engine."""

    def has(self, model: str) -> bool:
        """Whether this provider has a model of that name."""
        ...

    def complete(self, request: ModelRequest, *, model: str) -> Completion:
        """Answer within ``request.timeout_s``; ``ModelError`` when there is no answer."""
        ...
