"""Which models there are: aliases with their order of fail-over, providers by prefix."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.core.signals import setting_changed

from orchestrator.adapters.llm.anthropic import AnthropicModels
from orchestrator.adapters.llm.base import Completion, ModelError, ModelProvider, ModelRequest
from orchestrator.adapters.llm.endpoints import Endpoint, read_endpoint
from orchestrator.adapters.llm.offline import OfflineModels
from orchestrator.adapters.llm.openai import OpenAIModels
from orchestrator.core.errors import ErrorClass

DEFAULT_ALIASES: Mapping[str, str] = {"fast": "offline:demo", "deep": "offline:demo"}
DEFAULT_TIMEOUT_S = 60.0
_BOX: Mapping[str, Mapping[str, Any]] = {"openai": {}, "anthropic": {}}

AliasSource = Callable[[], Mapping[str, Sequence[str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One model that an alias leads to. ``name`` is ``provider:model``; ``timeout_s`` bounds one
    call of it."""

    name: str
    provider: str
    model: str
    timeout_s: float

    def complete(self, request: ModelRequest) -> Completion:
        """Let it answer; ``ModelError`` when there is no answer."""
        return _providers()[self.provider].complete(request, model=self.model)


class _Console:
    """Aliases set in the console; they stand above those of the settings."""

    source: AliasSource | None = None


def set_alias_source(source: AliasSource | None) -> None:
    """From now on ``source()`` is asked for aliases before the settings are."""
    _Console.source = source


def targets(name: str) -> tuple[Target, ...]:
    """What an alias, or ``provider:model``, leads to, in the order of fail-over; () for a name
    that leads nowhere, or partly nowhere."""
    found = [_target(each) for each in _aliases().get(name, (name,))]
    return () if None in found else tuple(each for each in found if each is not None)


def complete(request: ModelRequest) -> Completion:
    """Let the first model behind the request's name answer; ``ModelError`` without an answer."""
    found = targets(request.model)
    if not found:
        raise unknown_model(request.model)
    return found[0].complete(request)


def unknown_model(name: str) -> ModelError:
    """The error for a name that leads nowhere."""
    known = ", ".join(aliases())
    return ModelError(
        f"no model is called {name!r}; known aliases: {known}", error_class=ErrorClass.PERMANENT
    )


def has_model(name: str) -> bool:
    """Whether ``name`` (an alias or ``provider:model``) can be called."""
    return bool(targets(name))


def aliases() -> tuple[str, ...]:
    """The aliases that documents may use, sorted."""
    return tuple(sorted(_aliases()))


def provider_names() -> tuple[str, ...]:
    """The providers of this installation, sorted."""
    return tuple(sorted(_providers()))


def setting_problems() -> list[str]:
    """One sentence for each provider or alias of the settings that cannot work."""
    problems = []
    for name, given in _configured().items():
        try:
            read_endpoint(name, given)
        except (ValueError, TypeError, AttributeError) as error:
            problems.append(str(error))
    if problems:
        return problems
    return [
        f"alias {alias} leads to {each!r}, which is no provider:model that the settings know"
        for alias, names in _from_settings().items()
        for each in names
        if _target(each) is None
    ]


def _target(name: str) -> Target | None:
    prefix, _, model = name.partition(":")
    provider = _providers().get(prefix)
    if provider is None or not provider.has(model):
        return None
    endpoint = getattr(provider, "endpoint", None)
    timeout_s = endpoint.timeout_s if isinstance(endpoint, Endpoint) else DEFAULT_TIMEOUT_S
    return Target(name=name, provider=prefix, model=model, timeout_s=timeout_s)


def _aliases() -> Mapping[str, Sequence[str]]:
    console = _Console.source() if _Console.source is not None else {}
    return {**_from_settings(), **console}


def _from_settings() -> dict[str, Sequence[str]]:
    options: Mapping[str, Any] = getattr(settings, "ORCHESTRATOR", {})
    configured: Mapping[str, str | Sequence[str]] | None = options.get("MODELS")
    found = DEFAULT_ALIASES if configured is None else configured
    return {name: (to,) if isinstance(to, str) else tuple(to) for name, to in found.items()}


def _configured() -> dict[str, Mapping[str, Any]]:
    options: Mapping[str, Any] = getattr(settings, "ORCHESTRATOR", {})
    return {**_BOX, **options.get("PROVIDERS", {})}


@lru_cache(maxsize=1)
def _providers() -> Mapping[str, ModelProvider]:
    found: dict[str, ModelProvider] = {"offline": OfflineModels()}
    for name, given in _configured().items():
        try:
            endpoint = read_endpoint(name, given)
        except (ValueError, TypeError, AttributeError):
            continue  # the system check says what is wrong with it
        speaks = AnthropicModels if endpoint.kind == "anthropic" else OpenAIModels
        found[name] = speaks(endpoint)
    return found


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "ORCHESTRATOR":
        _providers.cache_clear()


setting_changed.connect(_forget)
