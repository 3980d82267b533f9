"""Fixtures of the gate's tests: runs that really reach their gate."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orchestrator import engine
from orchestrator.engine import ports
from tests.engine.carrier import Carrier


@pytest.fixture
def carrier() -> Iterator[Carrier]:
    """Wake-ups delivered in this process, when the test says so."""
    usual = ports.dispatcher()
    mine = Carrier()
    engine.set_dispatcher(mine)
    yield mine
    engine.set_dispatcher(usual)
