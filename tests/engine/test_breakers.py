"""Services that ail: their steps wait and burn no attempt; others go on; all of them end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from orchestrator import engine
from orchestrator.authoring import Permanent, RateLimited, ToolContext, Transient
from orchestrator.engine import breakers, gates
from orchestrator.models import Alert, Breaker, Gate, Run, Step, breaker_rows, gate_rows
from tests.engine import probes
from tests.engine.carrier import Carrier
from tests.engine.runs import (
    TENANT,
    count,
    events,
    fail,
    hang,
    hook,
    kill,
    output,
    payload,
    ran,
    registered,
    say,
    settle_down,
    start,
    started,
    state,
    step,
)

pytestmark = pytest.mark.django_db(transaction=True)
Turn = Callable[[float], None]
NAME = "outside"


def call(**more: Any) -> dict[str, Any]:
    return {"type": "tool", "tool": "probe.call", "input": {"value": "hi"}, **more}


def ail(retry_after: float | None = None) -> None:
    def answer(ctx: ToolContext) -> Any:
        raise Transient("503 from outside", retry_after=retry_after)

    probes.hooks[NAME] = answer


def heal() -> None:
    probes.hooks.pop(NAME, None)


def see() -> None:
    """A second later by every process's own clock."""
    gates.cache.forget()


def storm(carrier: Carrier, n: int = 5, **more: Any) -> list[UUID]:
    """Runs that call the service, sent at once; the first five open its breaker."""
    blueprint = registered({"a": call(), "b": say(1, needs=["a"])}, **more)
    found = [start(blueprint) for _ in range(n)]
    carrier.run_all()
    return found


def breaker() -> Breaker:
    return Breaker.objects.get(service=NAME)


def attempts() -> int:
    return sum(Step.objects.filter(key="a").values_list("attempt", flat=True))


def turn_to_probe(turn_time: Turn) -> None:
    turn_time(5.1)
    engine.beat_once()


def test_five_failures_open_the_breaker_and_the_sixth_run_burns_no_attempt(
    carrier: Carrier,
) -> None:
    ail()
    runs = storm(carrier, 8)

    assert breaker().state == "open"
    assert probes.calls[NAME] == attempts() == 5
    waiting = [r for r in runs if state(r) == "waiting"]
    assert len(waiting) == 3
    row = step(waiting[0], "a")
    assert (row.state, row.waiting_for, row.waiting_key) == (
        "waiting",
        "service",
        "service:outside",
    )
    assert row.attempt == 0
    assert "breaker is open" in row.why
    assert Run.objects.get(pk=waiting[0]).waiting_for == "service"
    assert not carrier.messages
    assert events(waiting[0])[-1] == "step.waiting"
    said = payload(waiting[0], "step.waiting")
    assert (said["waiting_for"], said["gate"]) == ("service", "service:outside")


def test_an_open_breaker_is_an_alert_until_it_closes(carrier: Carrier, turn_time: Turn) -> None:
    ail()
    storm(carrier)
    alert = Alert.objects.get(kind="breaker_open", key=NAME)
    assert alert.closed_at is None
    assert "503" in alert.detail["error"]

    heal()
    settle_down(carrier, turn_time, by=6)

    alert.refresh_from_db()
    assert alert.closed_at is not None


def test_retries_wait_for_the_breaker_and_burn_nothing(
    carrier: Carrier, turn_time: Turn, settings: Any
) -> None:
    patient = {"open_s": 600, "max_open_s": 600}
    settings.ORCHESTRATOR = {**settings.ORCHESTRATOR, "BREAKER": patient}
    ail()
    runs = storm(carrier)

    turn_time(61)  # every back-off is over, the breaker is not
    engine.beat_once()
    carrier.run_all()
    engine.beat_once()

    assert {state(r) for r in runs} == {"waiting"}
    assert attempts() == 5


def test_when_the_service_heals_probes_go_one_by_one_then_all_end(
    carrier: Carrier, turn_time: Turn
) -> None:
    ail()
    runs = storm(carrier, 40)
    heal()

    turn_to_probe(turn_time)
    assert breaker().state == "half_open"
    assert len([m for m in carrier.messages if m.path.startswith("a")]) == 1
    settle_down(carrier, turn_time, by=6)

    assert {state(r) for r in runs} == {"completed"}
    assert attempts() == 40 + 5
    assert breaker().state == "closed"
    assert not Gate.objects.exists()


def test_only_as_many_probes_are_out_as_the_half_open_breaker_allows(
    carrier: Carrier, turn_time: Turn
) -> None:
    ail()
    storm(carrier, 40)
    heal()
    turn_to_probe(turn_time)
    widths = []
    while breaker().state == "half_open":
        see()
        engine.beat_once()
        out = Step.objects.filter(passed="service:outside", state__in=("ready", "running"))
        widths.append(out.count())
        carrier.run_one()

    assert widths[0] == 1
    assert max(widths) <= 16
    assert widths == sorted(widths)


def test_a_failed_probe_opens_the_breaker_again_for_longer(
    carrier: Carrier, turn_time: Turn
) -> None:
    ail()
    storm(carrier, 10)
    turn_to_probe(turn_time)
    carrier.run_all()

    row = breaker()
    assert (row.state, row.trips) == ("open", 2)
    assert row.probe_at is not None
    assert round((row.probe_at - row.since).total_seconds()) == 10
    assert attempts() == 6


def test_retry_after_is_obeyed_as_the_earliest_probe(carrier: Carrier, turn_time: Turn) -> None:
    ail(retry_after=120)
    storm(carrier, 10)

    turn_time(100)
    engine.beat_once()
    assert breaker().state == "open"
    turn_time(21)
    engine.beat_once()
    assert breaker().state == "half_open"


def test_a_permanent_error_is_an_answer_and_does_not_open_the_breaker(carrier: Carrier) -> None:
    def refuse(ctx: ToolContext) -> Any:
        raise Permanent("400")

    probes.hooks[NAME] = refuse
    storm(carrier, 10)

    assert not Breaker.objects.exists()
    assert not Gate.objects.exists()


def test_a_defect_of_the_tool_does_not_open_the_breaker(carrier: Carrier) -> None:
    def stumble(ctx: ToolContext) -> Any:
        raise KeyError("amount")

    probes.hooks[NAME] = stumble
    storm(carrier, 10)

    assert not Breaker.objects.exists()


def test_rate_limits_and_time_outs_open_it_too(carrier: Carrier) -> None:
    def limit(ctx: ToolContext) -> Any:
        raise RateLimited("429")

    probes.hooks[NAME] = limit
    storm(carrier, 4)
    probes.hooks[NAME] = probes.die
    run_id = started({"a": call()})
    kill(carrier)
    hang(run_id, "a")
    engine.beat_once()

    assert breaker().state == "open"


def test_steps_without_a_service_and_of_other_services_go_on(carrier: Carrier) -> None:
    ail()
    storm(carrier)
    see()

    assert output(ran(carrier, {"a": say(1), "b": say(2, needs=["a"])})) == {"b": 2}
    other = ran(carrier, {"a": say(1, service="other"), "b": say(2, needs=["a"])})
    assert output(other) == {"b": 2}


def test_the_document_may_name_the_service_and_stands_above_the_tool(carrier: Carrier) -> None:
    ail()
    storm(carrier)
    see()
    heal()

    theirs = ran(carrier, {"a": call(service="elsewhere")})
    ours = ran(carrier, {"a": say(1, service=NAME)})
    engine.beat_once()

    assert state(theirs) == "completed"
    assert state(ours) == "waiting"


def test_a_fused_stretch_stops_before_a_service_that_ails(carrier: Carrier) -> None:
    ail()
    storm(carrier)
    see()
    run = ran(carrier, {"x": count("x"), "a": call(needs=["x"])})
    engine.beat_once()

    assert probes.calls["x"] == 1
    assert state(run) == "waiting"
    assert step(run, "a").attempt == 0


def test_no_message_is_sent_for_what_is_known_to_be_shut(carrier: Carrier) -> None:
    ail()
    storm(carrier)
    see()
    gates.cache.now()
    carrier.sent.clear()
    run_id = started({"a": call()})

    assert not carrier.sent
    engine.beat_once()
    assert state(run_id) == "waiting"


def test_items_wait_and_hold_no_place_of_the_run(carrier: Carrier, turn_time: Turn) -> None:
    ail()
    storm(carrier)
    see()
    run = ran(
        carrier,
        {
            "a": call(for_each={"items": [1, 2, 3, 4], "max_parallel": 4}),
            "c": count("c"),
        },
        max_parallel=1,
    )
    run.refresh_from_db()
    assert probes.calls["c"] == 1
    assert (run.state, run.waiting_for) == ("waiting", "service")

    heal()
    settle_down(carrier, turn_time, by=6)
    assert output(run)["a"] == ["hi"] * 4


def test_compensations_wait_for_the_service_too(carrier: Carrier, turn_time: Turn) -> None:
    ail()
    storm(carrier)
    see()
    undo = {"tool": "probe.undo", "input": {"value": "x"}}
    run = ran(
        carrier,
        {"p": say(1, compensate=undo), "q": {**fail(), "needs": ["p"]}},
    )
    engine.beat_once()
    run.refresh_from_db()
    assert (run.state, run.waiting_for) == ("compensating", "service")
    assert step(run, "undo:p").attempt == 0

    heal()
    settle_down(carrier, turn_time, by=6)
    run.refresh_from_db()
    assert (run.state, run.compensation) == ("failed", "full")


def test_a_parked_run_can_be_paused_resumed_and_cancelled(
    carrier: Carrier, turn_time: Turn
) -> None:
    ail()
    runs = storm(carrier, 7)
    paused, cancelled = runs[5:]
    engine.pause_run(paused, actor="me", reason="look")
    engine.cancel_run(cancelled, actor="me", reason="enough")
    assert (state(paused), state(cancelled)) == ("paused", "cancelled")

    heal()
    turn_time(400)
    for _ in range(30):
        see()
        engine.beat_once()
        carrier.run_all()
        turn_time(6)
    assert state(paused) == "paused"
    assert step(paused, "a").state == "waiting"

    engine.resume_run(paused, actor="me", reason="go")
    settle_down(carrier, turn_time, by=6)
    assert state(paused) == "completed"


def test_a_parked_run_ends_by_its_own_time(carrier: Carrier, turn_time: Turn) -> None:
    ail(retry_after=3600)
    runs = storm(carrier, 6, timeout="10m")

    turn_time(601)
    engine.beat_once()

    assert state(runs[5]) == "timed_out"


def test_a_lost_probe_does_not_block_the_next_one(carrier: Carrier, turn_time: Turn) -> None:
    ail()
    runs = storm(carrier, 10)
    turn_to_probe(turn_time)
    probes.hooks[NAME] = probes.die
    kill(carrier)
    heal()
    turn_time(400)
    for run_id in runs:
        if step(run_id, "a").state == "running":
            hang(run_id, "a")
    settle_down(carrier, turn_time, by=61)

    assert {state(r) for r in runs} == {"completed"}


def test_one_run_of_many_steps_does_not_keep_others_from_their_turn(
    carrier: Carrier, turn_time: Turn
) -> None:
    ail()
    storm(carrier)
    see()
    wide = registered({f"a{n}": call() for n in range(30)}, name="wide", max_parallel=30)
    start(wide)
    carrier.run_all()
    small = [started({"a": call()}) for _ in range(3)]
    carrier.run_all()
    for _ in range(3):
        engine.beat_once()
        carrier.run_all()
    first = gate_rows.next_in_line("service:outside", 9)

    assert set(small) <= {found.run_id for found in first}


def test_the_breaker_counts_calls_that_ended_well(carrier: Carrier) -> None:
    storm(carrier, 20)
    ail()
    storm(carrier, 6)

    assert breaker().state == "closed"
    calls = sum(bucket[1] for bucket in breaker().buckets)
    assert calls == 26


def test_retries_beyond_the_budget_wait_and_burn_nothing(
    carrier: Carrier, turn_time: Turn, settings: Any
) -> None:
    policy = {"failures": 1000, "retry_floor": 3, "retry_share": 0.0}
    settings.ORCHESTRATOR = {**settings.ORCHESTRATOR, "BREAKER": policy}
    ail()
    runs = storm(carrier, 10)
    turn_time(5)
    see()
    engine.beat_once()
    for _ in range(10):
        if carrier.messages:
            carrier.run_one()
        see()

    assert Gate.objects.filter(key="retries:outside").exists()
    waiting = Step.objects.filter(waiting_key="retries:outside")
    assert waiting.count() == 7
    assert attempts() == 10 + 3
    fresh = ran(carrier, {"a": say(1, service=NAME)})
    assert state(fresh) == "completed"  # new work is let through

    heal()
    settle_down(carrier, turn_time, by=61)
    assert {state(r) for r in runs} == {"completed"}


def test_peace_costs_no_read_of_the_gates(
    carrier: Carrier, django_assert_num_queries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    honest = gates.gate_rows.live_gates

    def watched() -> Any:
        read.append(1)
        return honest()

    monkeypatch.setattr(gates.gate_rows, "live_gates", watched)
    run_id = started({"a": call(), "b": call(needs=["a"]), "c": say(1, needs=["b"])})
    gates.cache.forget()
    carrier.run_all()

    assert state(run_id) == "completed"
    assert not read


def test_two_processes_see_one_breaker(carrier: Carrier) -> None:
    ail()
    storm(carrier, 3)
    breakers.tallies.forget()
    see()
    storm(carrier, 2)

    assert breaker().state == "open"
    assert breaker_rows.to_look_at() == []


def named(service: str = NAME, **more: Any) -> dict[str, Any]:
    """A step of a tool without a service of its own: what it calls is the document's word."""
    return hook("call", "hi", service=service, **more)


def test_what_only_a_document_names_ails_for_its_own_tenant_alone(carrier: Carrier) -> None:
    """Whatever a document calls its service, nobody else's work stands behind its breaker."""

    def call_it(ctx: ToolContext) -> Any:
        if ctx.tenant == TENANT:
            raise Transient("503 from outside")

    probes.hooks["call"] = call_it
    for _ in range(6):
        ran(carrier, {"a": named()})
    see()

    assert list(Breaker.objects.values_list("service", "state")) == [("outside@acme", "open")]
    assert state(ran(carrier, {"a": named()})) == "waiting"
    assert output(ran(carrier, {"a": named()}, tenant="beta")) == {"a": "hi"}
    assert output(ran(carrier, {"a": call()})) == {"a": "hi"}, "the tool's own is everybody's"
    shown = {one.name for one in engine.services("beta")}
    assert (NAME in shown, "outside@acme" in shown) == (True, False)
    assert "outside@acme" in {one.name for one in engine.services(TENANT)}


@pytest.mark.parametrize(
    ("held", "acme", "beta", "shared"),
    [
        ("outside", "waiting", "waiting", "waiting"),
        ("outside@acme", "waiting", "completed", "completed"),
    ],
)
def test_a_name_is_held_for_all_tenants_or_for_one(
    carrier: Carrier, held: str, acme: str, beta: str, shared: str
) -> None:
    probes.hooks["call"] = lambda ctx: None
    engine.hold("service", held, actor="user:ann", reason="outage")

    runs = (
        ran(carrier, {"a": named()}),
        ran(carrier, {"a": named()}, tenant="beta"),
        ran(carrier, {"a": call()}, tenant="beta"),
    )
    engine.beat_once()

    assert tuple(state(run) for run in runs) == (acme, beta, shared)


def test_nobody_puts_a_step_behind_anothers_breaker_by_its_name(carrier: Carrier) -> None:
    probes.hooks["call"] = lambda ctx: None
    engine.hold("service", "outside@acme", actor="user:ann", reason="outage")

    run = ran(carrier, {"a": named("outside@acme")}, tenant="beta")

    assert output(run) == {"a": "hi"}
    assert step(run, "a").gates == ["service:outside@acme@beta"]


@pytest.mark.parametrize(("limit", "counted"), [("1s", False), ("4s", True)])
def test_a_document_that_gives_no_time_says_nothing_about_a_shared_service(
    carrier: Carrier, limit: str, counted: bool
) -> None:
    for _ in range(5):
        probes.hooks[NAME] = probes.die
        run_id = started({"a": call(timeout=limit, retry={"max_retries": 0})})
        kill(carrier)
        hang(run_id, "a")
        engine.beat_once()

    assert Breaker.objects.filter(service=NAME, state="open").exists() is counted


def test_a_value_that_the_tool_refuses_is_no_failure_of_the_service(carrier: Carrier) -> None:
    def refuse(ctx: ToolContext) -> Any:
        raise ValueError("amount must be positive")

    probes.hooks[NAME] = refuse
    for _ in range(6):
        ran(carrier, {"a": call()})

    assert not Breaker.objects.exists()
