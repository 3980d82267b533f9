from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.adapters.web import Web, serving


@pytest.fixture
def web() -> Iterator[Web]:
    with serving() as running:
        yield running


@pytest.fixture
def options(settings: Any) -> Callable[..., None]:
    """Set some of the engine's options for one test."""

    def change(**values: Any) -> None:
        settings.ORCHESTRATOR = {**settings.ORCHESTRATOR, **values}

    return change
