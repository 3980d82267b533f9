"""Which models there are: aliases from the settings, providers by prefix."""

from __future__ import annotations

from collections.abc import Mapping

from django.conf import settings

from orchestrator.adapters.llm.base import Completion, ModelError, ModelProvider, ModelRequest
from orchestrator.adapters.llm.offline import OfflineModels
from orchestrator.core.errors import ErrorClass

DEFAULT_ALIASES: Mapping[str, str] = {"fast": "offline:demo", "deep": "offline:demo"}

_PROVIDERS: Mapping[str, ModelProvider] = {"offline": OfflineModels()}


def complete(request: ModelRequest) -> Completion:
    """Let the model named by the request answer; ``ModelError`` when there is no answer."""
    found = _find(request.model)
    if found is None:
        raise ModelError(
            f"no model is called {request.model!r}; known aliases: {', '.join(aliases())}",
            error_class=ErrorClass.PERMANENT,
        )
    provider, model = found
    return provider.complete(request, model=model)


def has_model(name: str) -> bool:
    """Whether ``name`` (an alias or ``provider:model``) can be called."""
    return _find(name) is not None


def aliases() -> tuple[str, ...]:
    """The aliases that documents may use, sorted."""
    return tuple(sorted(_aliases()))


def provider_of(name: str) -> str:
    """The provider behind an alias or ``provider:model``; empty when the name leads nowhere."""
    prefix, colon, _ = _aliases().get(name, name).partition(":")
    return prefix if colon else ""


def _find(name: str) -> tuple[ModelProvider, str] | None:
    target = _aliases().get(name, name)
    prefix, _, model = target.partition(":")
    provider = _PROVIDERS.get(prefix)
    if provider is None or not provider.has(model):
        return None
    return provider, model


def _aliases() -> Mapping[str, str]:
    configured: Mapping[str, str] | None = getattr(settings, "ORCHESTRATOR", {}).get("MODELS")
    return DEFAULT_ALIASES if configured is None else configured
