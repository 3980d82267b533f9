"""Holds and quotas: an operator keeps work from starting, or from starting too many at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from orchestrator import engine
from orchestrator.core.errors import InvalidRequest, StateConflict
from orchestrator.engine import gates, parking, steps
from orchestrator.models import Gate, Hold, Quota, Run, Step, gate_rows, ready_pages
from tests.engine import probes
from tests.engine.carrier import Carrier
from tests.engine.runs import (
    TENANT,
    count,
    events,
    output,
    ran,
    registered,
    say,
    settle_down,
    start,
    started,
    state,
    step,
)
from tests.engine.test_taking import waits_for_a_lock

pytestmark = pytest.mark.django_db(transaction=True)
Turn = Callable[[float], None]
ME = {"actor": "user:ann", "reason": "provider outage"}
CALL: dict[str, Any] = {"type": "tool", "tool": "probe.call", "input": {"value": "hi"}}
AGENT: dict[str, Any] = {"type": "agent", "model": "fast", "prompt": "hello"}


@pytest.mark.parametrize(
    ("scope", "name", "a"),
    [
        ("service", "outside", CALL),
        ("service", "offline", {**AGENT, "model": "offline:echo"}),
        ("model", "fast", AGENT),
        ("tenant", TENANT, say(1)),
        ("queue", "tool", say(1)),
        ("global", "", say(1)),
    ],
)
def test_what_is_held_waits_with_the_reason_and_goes_on_when_released(
    carrier: Carrier, turn_time: Turn, scope: str, name: str, a: dict[str, Any]
) -> None:
    engine.hold(scope, name, **ME)
    run = ran(carrier, {"a": a})
    engine.beat_once()
    run.refresh_from_db()

    assert (run.state, run.waiting_for) == ("waiting", "service")
    assert step(run, "a").attempt == 0
    assert "held by user:ann: provider outage" in engine.picture(run).why
    assert not carrier.messages

    engine.release_hold(scope, name, actor="user:bob", reason="back")
    settle_down(carrier, turn_time)
    assert state(run) == "completed"
    assert events(run, "a")[:4] == ["step.ready", "step.waiting", "step.ready", "step.started"]
    hold = Hold.objects.get()
    assert (hold.actor, hold.released_by, hold.release_reason) == ("user:ann", "user:bob", "back")
    assert not Gate.objects.exists()


@pytest.mark.parametrize(
    ("scope", "name"),
    [
        ("service", "another"),
        ("model", "deep"),
        ("tenant", "somebody"),
        ("queue", "tool.erp"),
    ],
)
def test_a_hold_concerns_nobody_else(carrier: Carrier, scope: str, name: str) -> None:
    engine.hold(scope, name, **ME)

    assert output(ran(carrier, {"a": CALL, "b": {**AGENT, "needs": ["a"]}}))


def test_running_bodies_finish_and_what_follows_waits(carrier: Carrier) -> None:
    def held_meanwhile(ctx: Any) -> None:
        engine.hold("global", "", **ME)

    probes.hooks["outside"] = held_meanwhile
    run = ran(carrier, {"a": CALL, "b": count("b", needs=["a"])})
    engine.beat_once()

    assert step(run, "a").state == "completed"
    assert step(run, "b").waiting_key == "global"
    assert probes.calls["b"] == 0


def test_a_hold_ends_by_itself_at_its_time(carrier: Carrier, turn_time: Turn) -> None:
    until = datetime.now(UTC) + timedelta(minutes=30)
    engine.hold("service", "outside", until=until, **ME)
    run = ran(carrier, {"a": CALL})
    engine.beat_once()
    (waiting,) = engine.picture(run).steps
    assert waiting.until == until

    turn_time(1801)
    settle_down(carrier, turn_time)
    assert state(run) == "completed"
    assert Hold.objects.get().released_by == "system:until"


def test_a_hold_is_made_once_and_released_once(carrier: Carrier) -> None:
    engine.hold("service", "outside", **ME)
    with pytest.raises(StateConflict, match="held already"):
        engine.hold("service", "outside", **ME)
    engine.release_hold("service", "outside", **ME)
    with pytest.raises(StateConflict, match="not held"):
        engine.release_hold("service", "outside", **ME)
    engine.hold("service", "outside", **ME)

    assert Hold.objects.count() == 2


@pytest.mark.parametrize(
    ("scope", "name", "reason", "until", "code"),
    [
        ("planet", "x", "r", None, "unknown_scope"),
        ("service", " ", "r", None, "name_missing"),
        ("global", "x", "r", None, "name_not_wanted"),
        ("service", "x", "  ", None, "reason_missing"),
        ("service", "x\x00", "r", None, "bad_name"),
        ("service", "x", "r", datetime(2020, 1, 1, tzinfo=UTC), "until_past"),
    ],
)
def test_a_hold_that_makes_no_sense_is_refused_with_its_place(
    carrier: Carrier, scope: str, name: str, reason: str, until: datetime | None, code: str
) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        engine.hold(scope, name, reason=reason, actor="me", until=until)

    assert refusal.value.code == code
    assert refusal.value.problems[0]["pointer"].startswith("/")
    assert not Gate.objects.exists()
    assert not Hold.objects.exists()


def test_what_two_gates_hold_waits_for_both(carrier: Carrier, turn_time: Turn) -> None:
    engine.hold("service", "outside", **ME)
    engine.hold("tenant", TENANT, **ME)
    run = ran(carrier, {"a": CALL})
    engine.beat_once()
    first = step(run, "a").waiting_key

    engine.release_hold(*first.split(":"), **ME)
    engine.beat_once()
    second = step(run, "a").waiting_key
    assert {first, second} == {"service:outside", f"tenant:{TENANT}"}
    assert step(run, "a").state == "waiting"

    engine.release_hold(*second.split(":"), **ME)
    settle_down(carrier, turn_time)
    assert state(run) == "completed"


def test_a_held_boot_starts_nothing_until_somebody_releases_it(
    carrier: Carrier, turn_time: Turn, settings: Any
) -> None:
    settings.ORCHESTRATOR = {**settings.ORCHESTRATOR, "HELD": True}
    out = StringIO()
    call_command("hold", "--boot", stdout=out)
    call_command("hold", "--boot", stdout=out)  # a stack that is started again
    run = ran(carrier, {"a": say(1)})
    engine.beat_once()

    assert "Still held" in out.getvalue()
    assert step(run, "a").state == "waiting"
    call_command("release", "global", "--reason", "effects are reconciled", stdout=out)
    settle_down(carrier, turn_time)
    assert state(run) == "completed"


def test_without_the_setting_boot_holds_nothing(carrier: Carrier) -> None:
    call_command("hold", "--boot")

    assert not Hold.objects.exists()


def test_the_commands_hold_list_and_release(carrier: Carrier) -> None:
    out = StringIO()
    call_command("hold", "service", "outside", "--reason", "outage", "--for", "4h", stdout=out)
    ran(carrier, {"a": CALL})
    engine.beat_once()
    call_command("quota", "queue", "tool", "3", stdout=out)
    call_command("breakers", stdout=out)
    call_command("quota", "queue", "tool", "none", stdout=out)
    call_command("release", "service", "outside", "--reason", "over", stdout=out)
    said = out.getvalue()

    assert "Held: service outside until 20" in said
    assert "No tool names" not in said
    assert "1 waiting  held by user:" in said
    assert "at most 3 at once" in said
    assert "Released: service outside" in said
    for wrong in (
        ["hold", "service"],
        ["hold", "service", "x"],
        ["hold", "service", "x", "--reason", "r", "--for", "soon"],
        ["release", "service", "outside", "--reason", "again"],
        ["quota", "queue", "tool", "many"],
        ["quota", "queue", "tool", "0"],
    ):
        with pytest.raises(CommandError):
            call_command(*wrong)


def test_who_holds_a_service_that_nobody_knows_is_told_so(carrier: Carrier) -> None:
    out = StringIO()
    call_command("hold", "service", "outsid", "--reason", "outage", stdout=out)

    assert "No tool names service outsid" in out.getvalue()


# -- quotas ----------------------------------------------------------------------------------------


def watched(carrier: Carrier, name: str = "outside") -> list[int]:
    """How many bodies were at work, each time one was."""
    seen: list[int] = []

    def look(ctx: Any) -> None:
        seen.append(Step.objects.filter(state="running", lease_until__isnull=False).count())

    probes.hooks[name] = look
    return seen


@pytest.mark.parametrize(
    ("scope", "name"), [("service", "outside"), ("tenant", TENANT), ("queue", "tool")]
)
def test_a_quota_bounds_what_is_at_work_and_all_of_it_ends(
    carrier: Carrier, turn_time: Turn, scope: str, name: str
) -> None:
    engine.set_quota(scope, name, max_in_flight=2, **ME)
    blueprint = registered({"a": CALL, "b": {**CALL, "needs": ["a"]}})
    runs = [start(blueprint) for _ in range(6)]

    claims = [steps.claim(engine.Order(run_id=m.run_id, key="a")) for m in carrier.messages]
    assert sum(claim is not None for claim in claims) == 2
    assert Step.objects.filter(state="waiting", waiting_key=f"{scope}:{name}").count() == 4

    Step.objects.filter(state="running").update(lease_until=datetime(2020, 1, 1, tzinfo=UTC))
    seen = watched(carrier)
    settle_down(carrier, turn_time)
    assert {state(r) for r in runs} == {"completed"}
    assert max(seen) <= 2


def test_many_claims_at_once_never_pass_a_quota(carrier: Carrier) -> None:
    engine.set_quota("queue", "tool", max_in_flight=3, **ME)
    blueprint = registered({"a": CALL})
    orders = [engine.Order(run_id=start(blueprint), key="a") for _ in range(12)]
    claims: list[Any] = []

    def claim(order: Any) -> None:
        try:
            claims.append(steps.claim(order))
        finally:
            connection.close()

    threads = [threading.Thread(target=claim, args=[order]) for order in orders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)

    assert sum(one is not None for one in claims) == 3
    assert Step.objects.filter(state="running").count() == 3
    assert Step.objects.filter(state="waiting").count() == 9
    with connection.cursor() as cursor:
        cursor.execute("UPDATE orchestrator_step SET lease_until = now() WHERE state = 'running'")


def test_who_counts_at_a_gate_waits_for_who_has_counted_before(carrier: Carrier) -> None:
    """Two messages at one instant for one free place: neither sees the other's claim."""
    engine.set_quota("queue", "tool", max_in_flight=1, **ME)
    blueprint = registered({"a": CALL})
    first, second = (engine.Order(run_id=start(blueprint), key="a") for _ in range(2))
    claims: list[Any] = []

    def claim() -> None:
        try:
            claims.append(steps.claim(second))
        finally:
            connection.close()

    other = threading.Thread(target=claim)
    with transaction.atomic():
        assert steps.claim(first) is not None
        other.start()
        while other.is_alive() and not waits_for_a_lock():
            pass
    other.join(timeout=30)

    assert claims == [None]
    assert step(second.run_id, "a").state == "waiting"
    with connection.cursor() as cursor:
        cursor.execute("UPDATE orchestrator_step SET lease_until = now() WHERE state = 'running'")


def test_a_freed_place_goes_to_the_next_in_line_without_a_sweep(carrier: Carrier) -> None:
    engine.set_quota("service", "outside", max_in_flight=1, **ME)
    blueprint = registered({"a": CALL})
    runs = [start(blueprint) for _ in range(5)]
    carrier.run_all()

    assert {state(r) for r in runs} == {"completed"}


def test_nobody_overtakes_those_who_wait(carrier: Carrier) -> None:
    engine.hold("service", "outside", **ME)
    early = ran(carrier, {"a": CALL})
    engine.beat_once()
    engine.release_hold("service", "outside", **ME)
    engine.set_quota("service", "outside", max_in_flight=1, **ME)
    late = started({"a": CALL})
    carrier.run_one()

    assert step(late, "a").state == "waiting"
    assert parking.let_through("service:outside") == 1
    assert step(early, "a").state == "ready"


def test_tenants_take_turns(carrier: Carrier) -> None:
    engine.hold("service", "outside", **ME)
    blueprint = registered({"a": CALL})
    for _ in range(6):
        start(blueprint)
    other = started({"a": CALL})
    Run.objects.filter(pk=other).update(tenant="beta")
    gates.cache.forget()
    engine.beat_once()
    carrier.run_all()

    first = gate_rows.next_in_line("service:outside", 2)
    assert other in {found.run_id for found in first}
    Run.objects.filter(pk=other).update(tenant=TENANT)


def test_a_quota_can_be_changed_and_dropped(carrier: Carrier) -> None:
    engine.set_quota("queue", "tool", max_in_flight=2, **ME)
    engine.set_quota("queue", "tool", max_in_flight=5, **ME)
    assert Quota.objects.get().max_in_flight == Gate.objects.get().allows == 5

    engine.drop_quota("queue", "tool")
    assert not Gate.objects.exists()
    with pytest.raises(StateConflict):
        engine.drop_quota("queue", "tool")
    with pytest.raises(InvalidRequest):
        engine.set_quota("model", "fast", max_in_flight=2, **ME)


def test_the_overview_tells_states_holds_and_who_waits(carrier: Carrier) -> None:
    engine.hold("service", "outside", **ME)
    engine.set_quota("tenant", TENANT, max_in_flight=9, **ME)
    ran(carrier, {"a": CALL})
    engine.beat_once()
    found = {one.key: one for one in engine.services()}

    assert found["service:outside"].state == "held"
    assert found["service:outside"].parked == 1
    assert found["service:outside"].held_reason == "provider outage"
    assert found[f"tenant:{TENANT}"].state == "limited"
    assert {one.scope for one in engine.services(TENANT)} == {"service"}
    assert {one.key: one.parked for one in engine.services("other")}["service:outside"] == 0


# -- queues that are too long ----------------------------------------------------------------------


def test_a_crowded_queue_gets_one_message_of_a_fan_out_and_the_rest_when_it_is_shorter(
    carrier: Carrier, turn_time: Turn, settings: Any
) -> None:
    settings.ORCHESTRATOR = {**settings.ORCHESTRATOR, "QUEUE_BOUND": 5}
    blueprint = registered({"a": count("a")})
    for _ in range(6):
        start(blueprint)
    engine.beat_once()
    gates.cache.now()
    carrier.sent.clear()

    wide = {f"w{n}": count(f"w{n}") for n in range(8)}
    run_id = started(wide)
    assert len(carrier.sent) == 1
    turn_time(20)
    engine.beat_once()
    assert len([m for m in carrier.sent if m.run_id == run_id]) == 1

    gates.cache.forget()
    settle_down(carrier, turn_time, by=5)
    assert state(run_id) == "completed"


def test_a_wide_run_does_not_hide_the_lost_message_of_another(carrier: Carrier) -> None:
    wide = started({f"w{n}": count(f"w{n}") for n in range(30)})
    small = started({"a": count("a")})
    carrier.messages.clear()
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE orchestrator_step SET ready_at = ready_at - interval '1 minute',"
            " dispatched_at = dispatched_at - interval '1 minute'"
        )
    found = ready_pages.Walk().stale("tool", after_s=2, is_empty=True)

    assert {one.run_id for one in ready_pages.in_turns(found, 2)} == {wide, small}
    carrier.run_all()
    engine.beat_once()
    carrier.run_all()
