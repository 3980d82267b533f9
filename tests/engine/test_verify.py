"""``manage.py verify`` says nothing of sound runs, and finds each fault that is planted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from orchestrator.clock import new_id
from orchestrator.models import Alert, Duty, Run
from orchestrator.ops.invariants import RULES, Pace, check_runs, newest_runs
from orchestrator.ops.verifying import verify_in_turn
from orchestrator.tasks import verify
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


# -- effects, answers, money, tenants, sagas -------------------------------------------------------

PAID = {"a": say({"external_ref": "R-1"}, effect={"key": "pay:${{ run.id }}"})}


@pytest.mark.parametrize(
    ("sql", "rule"),
    [
        (
            "UPDATE orchestrator_effect SET response_hash = '' WHERE run_id = %s",
            "receipt_intended",
        ),
        (
            "UPDATE orchestrator_effect SET settled_at = NULL WHERE run_id = %s",
            "receipt_intended",
        ),
        (
            "WITH gone AS (UPDATE orchestrator_event SET type = 'note' WHERE run_id = %s"
            " AND type = 'effect.intended' RETURNING run_id)"
            " UPDATE orchestrator_effect e SET intended_at = intended_at + interval '1 hour'"
            " FROM gone WHERE e.run_id = gone.run_id",
            "receipt_intended",
        ),
        ("UPDATE orchestrator_effect SET status = 'not_applied' WHERE run_id = %s", "effect_once"),
        (
            "UPDATE orchestrator_event SET type = 'effect.receipt' WHERE run_id = %s"
            " AND type = 'effect.intended'",
            "effect_once",
        ),
        ("UPDATE orchestrator_effect SET tenant = 'other' WHERE run_id = %s", "one_tenant"),
        ("UPDATE orchestrator_step SET tokens_in = 7 WHERE run_id = %s", "costs_add_up"),
        ("UPDATE orchestrator_run SET cost_microusd = 7 WHERE id = %s", "costs_add_up"),
    ],
)
def test_a_fault_in_a_paid_run_is_found(
    carrier: Carrier, planted: Any, sql: str, rule: str
) -> None:
    run = ran(carrier, PAID)
    assert found(run) == {}
    planted(sql, run.pk)
    assert rule in found(run)


@pytest.mark.parametrize(
    ("sql", "rule"),
    [
        ("DELETE FROM orchestrator_turn WHERE run_id = %s", "turns_told"),
        ("UPDATE orchestrator_turn SET cost_microusd = 7 WHERE run_id = %s", "turns_paid"),
        ("UPDATE orchestrator_turn SET tokens_in = 7 WHERE run_id = %s", "turns_paid"),
        ("UPDATE orchestrator_turn SET tenant = 'other' WHERE run_id = %s", "one_tenant"),
    ],
)
def test_a_fault_in_a_conversation_with_a_model_is_found(
    carrier: Carrier, planted: Any, sql: str, rule: str
) -> None:
    run = ran(carrier, {"a": {"type": "agent", "model": "offline:echo", "prompt": "hello"}})
    assert found(run) == {}
    planted(sql, run.pk)
    assert rule in found(run)


def test_two_runs_with_a_receipt_for_one_key_are_found(carrier: Carrier, planted: Any) -> None:
    paid, other = ran(carrier, PAID), ran(carrier, PAID)
    planted(
        "UPDATE orchestrator_event e SET payload = o.payload FROM orchestrator_event o"
        " WHERE e.run_id = %s AND o.run_id = %s"
        " AND e.type = 'effect.receipt' AND o.type = 'effect.receipt'",
        other.pk,
        paid.pk,
    )
    assert found(paid) == {}
    assert "effect_once" in found(other)


def test_an_answer_that_came_and_was_not_taken_is_found(carrier: Carrier, planted: Any) -> None:
    run = ran(carrier, {"a": WAIT})
    planted(
        "INSERT INTO orchestrator_signal (run_id, name, scope, signal_id, payload, payload_hash,"
        " actor, received_at) VALUES (%s, 'go', '', 's1', '1', '', '', now())",
        run.pk,
    )
    assert found(run) == {"answers_taken": "a"}


def test_a_run_that_says_it_was_undone_and_was_not_is_found(carrier: Carrier, planted: Any) -> None:
    undo = {"compensate": {"tool": "probe.say", "input": {}}}
    run = ran(carrier, {"a": say(1, **undo), "b": fail(needs=["a"])})
    assert found(run) == {}
    planted("UPDATE orchestrator_run SET compensation = 'none' WHERE id = %s", run.pk)
    assert found(run) == {"saga_complete": ""}


# -- on a beat -------------------------------------------------------------------------------------


def alerts() -> dict[str, bool]:
    """The invariants of which an alert tells: whether it is open."""
    return {a.key: a.closed_at is None for a in Alert.objects.filter(kind="invariant")}


def test_a_broken_invariant_is_an_alert_until_it_is_mended(
    carrier: Carrier, planted: Any, turn_time: Any
) -> None:
    run = ran(carrier, {"a": WAIT})
    ran(carrier, {"a": WAIT})
    verify()
    assert alerts() == {}
    planted("UPDATE orchestrator_run SET next_seq = 99 WHERE id = %s", run.pk)
    turn_time(300)
    verify()
    alert = Alert.objects.get(kind="invariant", key="history_gapless")
    assert (alert.run_id, alert.detail["runs"]) == (run.pk, [str(run.pk)])
    assert str(run.pk) in alert.title
    planted(
        "UPDATE orchestrator_run r SET next_seq = (SELECT max(seq) + 1"
        " FROM orchestrator_event e WHERE e.run_id = r.id) WHERE id = %s",
        run.pk,
    )
    turn_time(300)
    verify()
    assert not any(alerts().values())


def test_only_what_changed_is_looked_at_again(carrier: Carrier, turn_time: Any) -> None:
    old = ran(carrier, {"a": WAIT})
    verify()
    assert Duty.objects.get(name="verify").notes["runs_looked_at"] == 1
    with connection.cursor() as cursor:  # far more than may be uncommitted at once
        cursor.execute(
            "INSERT INTO orchestrator_event (run_id, seq, type, at)"
            " SELECT %s, n, 'note', now() FROM generate_series(1, 1100) n",
            [new_id()],
        )
    turn_time(300)
    verify()
    turn_time(300)
    new = ran(carrier, {"a": say(1)})
    verify()
    notes = Duty.objects.get(name="verify").notes
    assert notes["broken"] == notes["runs_left_out"] == {}
    assert notes["runs_looked_at"] <= 2
    assert old.pk != new.pk


def test_two_beats_verify_once(carrier: Carrier) -> None:
    assert verify_in_turn() is not None
    assert verify_in_turn() is None


def test_a_rule_that_takes_too_long_is_left_out_and_said_so(
    carrier: Carrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(runs: Any) -> list[Any]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(5)")
        return []

    run = ran(carrier, {"a": say(1)})
    with monkeypatch.context() as patch:
        patch.setitem(RULES, "last_word", ("slow", slow))
        findings = check_runs([run.pk], Pace(statement_ms=50, until=time.monotonic() + 9))
    skipped = {f.rule: (f.n_runs, f.n_skipped) for f in findings if f.n_skipped}
    assert skipped == {"last_word": (0, 1)}


def test_what_is_not_reached_in_time_is_not_looked_at(carrier: Carrier) -> None:
    run = ran(carrier, {"a": say(1)})
    findings = check_runs([run.pk], Pace(statement_ms=50, until=time.monotonic() - 1))
    assert {finding.n_runs for finding in findings} == {0}
