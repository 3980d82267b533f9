"""The port to language models: a conversation in, one answer with its cost out."""

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
class ToolOffer:
    """A tool that the model may ask for; ``input_schema`` is the JSON Schema of its arguments."""

    name: str
    description: str
    input_schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """What a model asks for. ``arguments`` is what it wrote, text that need not be JSON."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The model's own words of an earlier turn, and what it asked for."""

    text: str
    uses: tuple[ToolUse, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of one use; every use of a ``Said`` has one before the model is asked again."""

    use_id: str
    name: str
    text: str
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A further word to the model."""

    text: str


Message = Said | Result | Asked


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One question to a model.

    ``model`` is an alias or ``provider:model``. With ``output_schema`` the answer's text is to be
    a JSON value that fits it; with ``choices`` the answer is to name ids, joined by commas.
    ``background`` is data that the model may look at, never an instruction. ``messages`` is what
    followed the prompt so far, ``tools`` what the model may ask for now.
    ``workflow`` and ``step`` say who asks (for traces and for the offline demo), ``tenant`` whose
    secrets are used.
    """

    model: str
    prompt: str
    system: str = ""
    background: str = ""
    output_schema: Mapping[str, Any] | None = None
    choices: tuple[Choice, ...] = ()
    messages: tuple[Message, ...] = ()
    tools: tuple[ToolOffer, ...] = ()
    max_tokens: int | None = None
    temperature: float | None = None
    timeout_s: float = 60.0
    workflow: str = ""
    step: str = ""
    tenant: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A model's answer. ``cost_microusd`` None means: price unknown (never zero); ``price`` says
    in words by what it was reckoned. ``uses`` is what the model asks for before it goes on."""

    text: str
    model: str
    tokens_in: int
    tokens_out: int
    cost_microusd: int | None
    uses: tuple[ToolUse, ...] = ()
    price: str = ""


class ModelError(OrchestratorError):
    """A call that gave no answer.

    Providers map a time-out to ``timeout``, 429 to ``rate_limit``, 5xx, lost connections and
    answers that cannot be read to ``transient`` and every other 4xx to ``permanent``.
    ``retry_after`` is in seconds. ``elsewhere``: it speaks against this model or provider, not
    against the request, so another may be asked. ``billed``: it may have cost something all the
    same, nobody knows how much.
    """

    code = "model_error"

    def __init__(
        self,
        message: str,
        *,
        error_class: ErrorClass,
        retry_after: float | None = None,
        elsewhere: bool | None = None,
        billed: bool = False,
    ) -> None:
        super().__init__(message)
        self.error_class = error_class
        self.retry_after = retry_after
        permanent = error_class is ErrorClass.PERMANENT
        self.elsewhere = not permanent if elsewhere is None else elsewhere
        self.billed = billed


class ModelProvider(Protocol):
    """One provider of models. Never retries by itself: attempts are counted by the engine."""

    def has(self, model: str) -> bool:
        """Whether this provider has a model of that name."""
        ...

    def complete(self, request: ModelRequest, *, model: str) -> Completion:
        """Answer within ``request.timeout_s``; ``ModelError`` when there is no answer."""
        ...
