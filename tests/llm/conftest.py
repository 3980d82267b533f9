"""Agents and routers over the real engine, and their models over real HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from orchestrator.adapters.llm.models import set_alias_source
from orchestrator.engine import aliases
from tests.engine.conftest import carrier, fusion
from tests.llm.stub import ModelStub, model_stub

__all__ = ["carrier", "fusion"]

PRICES = {"a": {"in": 3, "out": 15}, "b": {"in": "0.5", "out": 1}}
BOTH = ["one:a", "two:b"]
Models = Callable[..., None]


@pytest.fixture
def stub() -> Iterator[ModelStub]:
    with model_stub() as one:
        yield one


@pytest.fixture
def fresh_aliases() -> Iterator[None]:
    """What one test sets in the console, the next does not see, whatever this process remembers."""
    yield
    aliases.cache = port_cache = type(aliases.cache)()
    set_alias_source(port_cache.now)


@pytest.fixture
def models(stub: ModelStub, settings: Any, fresh_aliases: None) -> Models:
    """Set providers and aliases: ``one`` and ``two`` are two providers of the same stub."""

    def put(aliases: dict[str, Any] | None = None, **endpoint: Any) -> None:
        given = stub.provider(prices=PRICES, **endpoint)
        settings.ORCHESTRATOR = {
            **settings.ORCHESTRATOR,
            "PROVIDERS": {
                "one": given,
                "two": given,
                "claude": stub.anthropic(prices=PRICES),
            },
            "MODELS": {"fast": BOTH, "deep": BOTH, **(aliases or {})},
            "GATES_SECONDS": 0,
        }

    put()
    return put
