"""Hot statements are parsed and planned once a connection, and outlive being forgotten."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import IntegrityError, OperationalError, connection

from orchestrator.crash import Unit
from orchestrator.models.statements import execute, fetch_prepared
from tests.engine import probes
from tests.engine.carrier import Carrier
from tests.engine.runs import ran, say, state

pytestmark = pytest.mark.django_db(transaction=True)

CHAIN = {"a": say(1), "b": say(2, needs=["a"]), "c": say(3, needs=["b"])}


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    probes.forget()
    connection.close()
    yield
    connection.close()


def known() -> dict[str, int]:
    """The statements that the server has parsed for this connection, and how often it has planned
    each."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement, generic_plans + custom_plans FROM pg_prepared_statements")
        return dict(cursor.fetchall())


def test_the_statements_of_a_step_are_kept_by_the_server(carrier: Carrier) -> None:
    for _ in range(2):
        ran(carrier, CHAIN)
    kept = [text for text in known() if "orchestrator_" in text]
    for name in ("orchestrator_begin", "orchestrator_take", "orchestrator_advance"):
        assert any(name in text for text in kept), name


def test_a_rollback_makes_the_server_forget_nothing(carrier: Carrier) -> None:
    ran(carrier, CHAIN)
    with pytest.raises(IntegrityError):
        _break()
    assert any("orchestrator_advance" in text for text in known())
    assert state(ran(carrier, CHAIN)) == "completed"


@Unit("broken")
def _break() -> None:
    fetch_prepared("SELECT 1", [])
    execute("INSERT INTO orchestrator_duty (name) VALUES (NULL)", [])


def test_a_statement_takes_values_of_any_type() -> None:
    for value in (1, 2, 70_000, None, "x"):
        fetch_prepared("SELECT %s::text, '100%%'", [value])
    kept = [text for text in known() if "100%" in text]
    assert kept == ["SELECT $1::text, '100%'"]
    assert fetch_prepared("SELECT %s::text, '100%%'", ["y"]) == ("y", "100%")


@Unit("undone")
def _undo() -> None:
    fetch_prepared("CREATE TABLE kept_statement (a int)", [])
    raise ZeroDivisionError


def test_a_statement_opens_the_transaction_that_it_is_in() -> None:
    with pytest.raises(ZeroDivisionError):
        _undo()
    assert fetch_prepared("SELECT to_regclass('kept_statement')", []) == (None,)


def test_a_column_that_changed_under_a_kept_statement_asks_for_a_new_connection() -> None:
    execute("CREATE TABLE kept_statement (a int)", [])
    try:
        fetch_prepared("SELECT a FROM kept_statement", [])
        other = connection.copy()  # a migration
        with other.cursor() as cursor:
            cursor.execute("ALTER TABLE kept_statement ALTER a TYPE text")
        other.close()
        with pytest.raises(OperationalError, match="made anew"):
            fetch_prepared("SELECT a FROM kept_statement", [])
        connection.close()
        assert fetch_prepared("SELECT a FROM kept_statement", []) is None
    finally:
        execute("DROP TABLE kept_statement", [])
