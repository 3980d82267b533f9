"""Callers, and a carrier of wake-ups in place of Celery."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orchestrator import engine
from orchestrator.engine.ports import dispatcher
from tests.desk.world import Caller, published
from tests.engine.carrier import Carrier


@pytest.fixture
def carrier() -> Iterator[Carrier]:
    """The engine's wake-ups, delivered when the test says so."""
    before = dispatcher()
    carrier = Carrier()
    engine.set_dispatcher(carrier)
    yield carrier
    engine.set_dispatcher(before)


@pytest.fixture
def shop(db: None, carrier: Carrier) -> Caller:
    """A caller who may do everything; the workflow ``order_check`` is published."""
    published()
    return Caller()


@pytest.fixture
def carried(django_capture_on_commit_callbacks, carrier: Carrier):
    """Do something as if its transaction had committed, then deliver every wake-up."""

    def carry(do):
        with django_capture_on_commit_callbacks(execute=True):
            result = do()
        while carrier.messages:
            with django_capture_on_commit_callbacks(execute=True):
                carrier.run_one()
        return result

    return carry
