"""``manage.py verify`` says nothing of sound runs, and finds each fault that is planted."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from orchestrator.clock import new_id
from orchestrator.models import Run
from orchestrator.ops.invariants import RULES, check_runs, newest_runs
from tests.engine import probes
from tests.engine.carrier import Carrier
from tests.engine.runs import fail, hook, kill, ran, say, started, step

WAIT = {"type": "wait", "signal": "go"}


@pytest.fixture
def planted(carrier: Carrier) -> Iterator[Any]:
    """A place to plant a fault; the runs are removed before the engine's own check looks."""

    def plant(sql: str, *params: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET orchestrator.retention = 'on'")
            cursor.execute(sql, params)
            assert cursor.rowcount > 0, "nothing was planted"

    yield plant
    with connection.cursor() as cursor:
        cursor.execute("SET orchestrator.retention = 'off'")
        cursor.execute("TRUNCATE orchestrator_run, orchestrator_outbox CASCADE")


def found(run: Run) -> dict[str, str]:
    """The rules that are broken, with the step that each names."""
    return {
        violation.rule: violation.step
        for finding in check_runs([run.pk])
        for violation in finding.violations
    }


def test_sound_runs_break_no_rule(carrier: Carrier) -> None:
    for steps in ({"a": say(1)}, {"a": WAIT}, {"a": fail()}, {"a": fail("other")}):
        ran(carrier, steps)
    printed = StringIO()
    call_command("verify", stdout=printed)
    lines = printed.getvalue().splitlines()
    assert len(lines) == len(RULES) + 1
    assert all(" ok " in line for line in lines)


def test_violations_are_named_and_end_with_status_one(carrier: Carrier, planted: Any) -> None:
    run = ran(carrier, {"a": WAIT})
    planted("UPDATE orchestrator_run SET next_seq = 99 WHERE id = %s", run.pk)
    said = StringIO()
    with pytest.raises(CommandError) as ended:
        call_command("verify", str(run.pk), stdout=StringIO(), stderr=said)
    assert ended.value.returncode == 1
    assert f"{run.pk} - history_gapless" in said.getvalue()


def test_an_unknown_run_is_said_so(carrier: Carrier) -> None:
    with pytest.raises(CommandError, match="there is no run"):
        call_command("verify", str(new_id()))


def test_a_gap_in_the_history_is_found(carrier: Carrier, planted: Any) -> None:
    run = ran(carrier, {"a": say(1)})
    planted("DELETE FROM orchestrator_event WHERE run_id = %s AND seq = 3", run.pk)
    assert "history_gapless" in found(run)


def test_an_end_without_its_event_is_found(carrier: Carrier, planted: Any) -> None:
    run = ran(carrier, {"a": WAIT})
    planted("UPDATE orchestrator_run SET state = 'failed' WHERE id = %s", run.pk)
    assert {"last_word", "terminal_closed"} <= set(found(run))


@pytest.mark.parametrize(
    ("sql", "rule"),
    [
        ("UPDATE orchestrator_step SET state = 'waiting' WHERE run_id = %s", "terminal_closed"),
        ("UPDATE orchestrator_step SET lease_until = now() WHERE run_id = %s", "running_leased"),
        ("UPDATE orchestrator_step SET state = 'failed' WHERE run_id = %s", "compact_state"),
        ("DELETE FROM orchestrator_step WHERE run_id = %s", "compact_state"),
        (
            "INSERT INTO orchestrator_timer (run_id, step_id, kind, fire_at)"
            " SELECT run_id, id, 'wait', now() FROM orchestrator_step WHERE run_id = %s",
            "timers_awaited",
        ),
        (
            "UPDATE orchestrator_run SET parent_id = id, tenant = 'other' WHERE id = %s",
            "family_tenant",
        ),
    ],
)
def test_a_fault_in_a_run_that_is_over_is_found(
    carrier: Carrier, planted: Any, sql: str, rule: str
) -> None:
    run = ran(carrier, {"a": say(1)})
    assert found(run) == {}
    planted(sql, run.pk)
    assert rule in found(run)


def test_what_runs_without_a_lease_is_found(carrier: Carrier, planted: Any) -> None:
    probes.hooks["die"] = probes.die
    run = Run.objects.get(pk=started({"a": hook("die")}))
    kill(carrier)
    assert found(run) == {}
    planted("UPDATE orchestrator_step SET lease_until = NULL WHERE run_id = %s", run.pk)
    assert found(run) == {"running_leased": "a"}


def test_a_wrong_running_counter_is_found(carrier: Carrier, planted: Any) -> None:
    run = ran(carrier, {"a": WAIT})
    planted("UPDATE orchestrator_run SET compact = set_byte(compact, 7, 3) WHERE id = %s", run.pk)
    assert found(run) == {"compact_state": ""}


def test_a_wrong_count_of_items_is_found(carrier: Carrier, planted: Any) -> None:
    run = ran(carrier, {"a": {**WAIT, "for_each": {"items": [1, 2]}}})
    planted(
        "UPDATE orchestrator_step SET state = 'cancelled' WHERE run_id = %s AND index = 0", run.pk
    )
    assert found(run) == {"compact_state": "a"}


def test_a_compact_state_of_another_build_is_found(carrier: Carrier, planted: Any) -> None:
    run = ran(carrier, {"a": WAIT})
    planted("UPDATE orchestrator_run SET compact = set_byte(compact, 0, 77) WHERE id = %s", run.pk)
    assert "compact_state" in found(run)


@pytest.mark.parametrize(
    ("wait", "sql"),
    [
        (WAIT, "UPDATE orchestrator_step SET waiting_key = '' WHERE run_id = %s"),
        ({"type": "wait", "for": "1h"}, "DELETE FROM orchestrator_timer WHERE run_id = %s"),
        (
            {"type": "sub_workflow", "workflow": "flow", "when": "input.go", "input": {}},
            "UPDATE orchestrator_run SET parent_step = NULL WHERE parent_id = %s",
        ),
    ],
    ids=["signal", "timer", "child"],
)
def test_a_wait_that_nothing_will_end_is_found(
    carrier: Carrier, planted: Any, wait: dict[str, Any], sql: str
) -> None:
    schema = {"type": "object", "properties": {"go": {"type": "boolean", "default": True}}}
    steps = {"a": {**wait, "input": {"go": False}}, "b": {**WAIT, "needs": ["c"]}, "c": say(1)}
    run = ran(carrier, steps, {"go": True}, pins={"flow": "self"}, input=schema)
    assert found(run) == {}
    planted(sql, run.pk)
    assert found(run)["waiting_reason"] in ("a", "b")


def test_a_retry_without_a_timer_is_found(carrier: Carrier, planted: Any) -> None:
    run = ran(carrier, {"a": fail("other")})
    planted("DELETE FROM orchestrator_timer WHERE run_id = %s", run.pk)
    assert found(run) == {"retrying_timed": "a"}


def test_a_fence_that_does_not_grow_is_found(carrier: Carrier, planted: Any) -> None:
    run = ran(carrier, {"a": fail("other", retry={"max_retries": 3, "base_delay": "0s"})})
    assert found(run) == {}
    planted(
        "UPDATE orchestrator_attempt SET fence = 1 WHERE step_id = %s AND number = 3",
        step(run, "a").pk,
    )
    assert found(run) == {"fences_grow": "a"}


def test_two_starts_without_an_end_between_are_found(carrier: Carrier, planted: Any) -> None:
    run = ran(carrier, {"a": say(1)})
    planted(
        "UPDATE orchestrator_event SET type = 'step.started'"
        " WHERE run_id = %s AND type = 'step.ready'",
        run.pk,
    )
    assert found(run) == {"one_start": "a"}


def test_a_start_before_its_needs_is_found(carrier: Carrier, planted: Any) -> None:
    run = ran(carrier, {"a": say(1), "b": say(2, needs=["a"])})
    planted(
        "UPDATE orchestrator_event SET step = CASE step WHEN 'a' THEN 'b' ELSE 'a' END"
        " WHERE run_id = %s AND step <> ''",
        run.pk,
    )
    assert found(run) == {"needs_first": "b"}


def test_a_run_that_goes_nowhere_is_found(carrier: Carrier, planted: Any) -> None:
    run = ran(carrier, {"a": WAIT})
    planted("UPDATE orchestrator_run SET state = 'running' WHERE id = %s", run.pk)
    assert found(run) == {"in_flight": ""}


def test_a_message_that_nobody_took_is_found(carrier: Carrier, planted: Any) -> None:
    run = ran(carrier, {"a": WAIT})
    planted(
        "INSERT INTO orchestrator_outbox (topic, run_id, payload, created_at, due_at, attempts,"
        " error) VALUES ('run.ended', %s, '{}', now(), now() - interval '1 hour', 3, 'boom')",
        run.pk,
    )
    assert found(run) == {"outbox_age": ""}


def test_the_newest_runs_are_looked_at_first(carrier: Carrier) -> None:
    old, new = ran(carrier, {"a": say(1)}), ran(carrier, {"a": say(1)})
    assert newest_runs(1) == [new.pk]
    assert newest_runs(9) == [new.pk, old.pk]
