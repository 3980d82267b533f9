"""Where a provider answers and how it is spoken to, as the settings say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from orchestrator.adapters import secrets
from orchestrator.adapters.llm.base import ModelError
from orchestrator.adapters.llm.pricing import Price, read_price
from orchestrator.authoring import Permanent
from orchestrator.core.errors import ErrorClass

Kind = Literal["openai", "anthropic"]
SECRET = "secret:"  # noqa: S105 - the mark of a reference, no secret
_URLS: Mapping[str, str] = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
}
_KEYS = frozenset({"kind", "url", "key", "timeout_s", "models", "prices", "structured"})
_STRUCTURED = ("schema", "object", "prompt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One provider of the settings.

    ``key`` is a reference, ``secret:NAME``, or empty where none is asked for. ``timeout_s`` bounds
    one call. ``models``: those that may be used; empty: any. ``structured``: whether a schema is
    sent along (``schema``), only that JSON is wanted (``object``), or nothing but words
    (``prompt``).
    """

    name: str
    kind: Kind
    url: str
    key: str = ""
    timeout_s: float = 60.0
    models: frozenset[str] = frozenset()
    prices: Mapping[str, Price] = field(default_factory=dict)
    structured: Literal["schema", "object", "prompt"] = "prompt"

    def secret(self, tenant: str) -> str:
        """The key itself; ``ModelError`` when it is not set."""
        if not self.key:
            return ""
        try:
            return secrets.store.read(tenant=tenant, name=self.key.removeprefix(SECRET))
        except Permanent as error:
            raise ModelError(
                f"{self.name}: {error}", error_class=ErrorClass.PERMANENT, elsewhere=True
            ) from error


def read_endpoint(name: str, given: Mapping[str, Any]) -> Endpoint:
    """A provider as the settings have it; ``ValueError`` says what is wrong with it.

    ``{"kind": "openai" | "anthropic", "url", "key": "secret:NAME", "timeout_s", "models": [...],
    "prices": {model: {"in", "out"}}, "structured": "schema" | "object" | "prompt"}``; ``kind`` may
    be left out of providers called after one.
    """
    kind = given.get("kind", name)
    if kind not in _URLS:
        raise ValueError(f"provider {name}: kind is openai or anthropic, not {kind!r}")
    unknown = sorted(set(given) - _KEYS)
    if unknown:
        raise ValueError(f"provider {name} does not know {', '.join(unknown)}")
    url = str(given.get("url", _URLS[kind])).rstrip("/")
    key = str(given.get("key", "" if "url" in given else f"{SECRET}{kind.upper()}_API_KEY"))
    if key and (not key.startswith(SECRET) or key == SECRET):
        raise ValueError(f"provider {name}: key is a reference, secret:NAME, never the key itself")
    structured = given.get("structured", "schema" if url == _URLS["openai"] else "prompt")
    if structured not in _STRUCTURED:
        raise ValueError(f"provider {name}: structured is one of {', '.join(_STRUCTURED)}")
    return Endpoint(
        name=name,
        kind=kind,
        url=url,
        key=key,
        timeout_s=_seconds(name, given.get("timeout_s", 60)),
        models=frozenset(map(str, given.get("models", ()))),
        prices=_prices(name, given.get("prices", {})),
        structured=structured,
    )


def _prices(name: str, given: Mapping[str, Any]) -> dict[str, Price]:
    prices = {}
    for model, price in given.items():
        try:
            prices[model] = read_price(price)
        except ValueError as error:
            raise ValueError(f"provider {name}, price of {model}: {error}") from error
    return prices


def _seconds(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 3600:
        raise ValueError(f"provider {name}: timeout_s is seconds, up to 3600")
    return float(value)
