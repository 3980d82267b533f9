"""Fixtures of the whole suite: a database whose clock can be turned."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

TurnTime = Callable[[float], None]

# The engine asks one function for the time of day; here it adds what the one row says.
CLOCK = """
CREATE TABLE IF NOT EXISTS orchestrator_clock (
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    turned_by interval NOT NULL DEFAULT '0'
);
INSERT INTO orchestrator_clock DEFAULT VALUES ON CONFLICT DO NOTHING;
UPDATE orchestrator_clock SET turned_by = '0';
CREATE OR REPLACE FUNCTION orchestrator_now() RETURNS timestamptz LANGUAGE sql STABLE AS
    'SELECT now() + (SELECT turned_by FROM orchestrator_clock)';
"""

# Live leases move along in the same statement: turning time is not a worker's death.
TURN = """
WITH turned AS (
    UPDATE orchestrator_clock SET turned_by = turned_by + %(delta)s
)
UPDATE orchestrator_step
   SET lease_until = lease_until + %(delta)s, timeout_at = timeout_at + %(delta)s
 WHERE state = 'running' AND lease_until IS NOT NULL
"""


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> None:
    """The test database of pytest-django, with a clock that tests may turn."""
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute(CLOCK)


@pytest.fixture
def turn_time() -> Iterator[TurnTime]:
    """Turn the database's clock forward: ``turn_time(3600)`` is an hour later for the engine.

    Needs the ``django_db`` mark; other connections and processes see it with
    ``transaction=True``. The clock is right again after the test.
    """
    turned = False

    def turn(seconds: float) -> None:
        nonlocal turned
        turned = True
        with connection.cursor() as cursor:
            cursor.execute(TURN, {"delta": timedelta(seconds=seconds)})

    yield turn
    # Inside a test's transaction the rollback resets the clock.
    if turned and not connection.in_atomic_block:
        with connection.cursor() as cursor:
            cursor.execute("UPDATE orchestrator_clock SET turned_by = '0'")
