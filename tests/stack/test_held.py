"""A stack that is started held, as after a restore: work is taken in, and none of it begins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import psycopg
import pytest

from tests.stack.live import LiveStack

pytestmark = [pytest.mark.stack, pytest.mark.timeout(240)]

DOCUMENT = {
    "schema": "orchestrator/v1",
    "name": "held",
    "steps": {"pause": {"type": "wait", "for": "1s"}},
}

# One process for both: each command starts Django anew.
BEGIN = """
from django.core.management import call_command
call_command("publish", {file!r}, tenant="acme")
call_command("start", "held", tenant="acme")
"""


@pytest.fixture
def held(tmp_path: Path) -> Iterator[LiveStack]:
    stack = LiveStack(tmp_path / "data")
    stack.environment["ORCHESTRATOR_HELD"] = "1"
    yield stack.start_ready()
    stack.end()


def test_a_stack_that_is_started_held_begins_nothing_until_it_is_released(
    held: LiveStack, tmp_path: Path
) -> None:
    with psycopg.connect(held.state()["database_url"]) as database:
        database.execute(
            "INSERT INTO workflows_app_tenant (slug, name, created_at) VALUES ('acme', '', now())"
        )
    file = tmp_path / "held.json"
    file.write_bytes(orjson.dumps(DOCUMENT))
    started = held.command("shell", "-v", "0", "-c", BEGIN.format(file=str(file)))
    assert started.returncode == 0, started.stderr
    run = started.stdout.split()[-1]

    held.wait_until(lambda: look(held, run)[:2] == ("waiting", "service"))
    assert look(held, run)[:3] == ("waiting", "service", 0)
    assert "held by system:boot: started with ORCHESTRATOR_HELD" in look(held, run)[3]

    released = held.command("release", "global", "--reason", "effects are reconciled")
    assert released.returncode == 0, released.stderr
    held.wait_until(lambda: look(held, run)[:3] == ("completed", "", 1))
    held.process.terminate()
    assert held.process.wait(40) == 0
    assert held.survivors() == []


def look(stack: LiveStack, run: str) -> tuple[str, str, int, str]:
    """State, what it waits for, how many attempts of its step have begun, and why it waits."""
    with psycopg.connect(stack.state()["database_url"]) as database:
        found = database.execute(
            "SELECT r.state, r.waiting_for, s.attempt, s.why FROM orchestrator_run r"
            " JOIN orchestrator_step s ON s.run_id = r.id WHERE r.id = %s",
            [run],
        ).fetchone()
    assert found is not None
    return found
