"""Lost, doubled and shuffled messages, dead workers, late results: time, never work."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from orchestrator import engine
from orchestrator.authoring import LeaseLost, ToolContext
from orchestrator.engine import ports
from orchestrator.models import Attempt, DeadLetter, Event, Run, Step
from tests.engine import probes
from tests.engine.carrier import Carrier
from tests.engine.runs import (
    count,
    error,
    events,
    fail,
    hang,
    hook,
    kill,
    lose,
    output,
    ran,
    say,
    settle_down,
    started,
    state,
    step,
    steps_of,
)

Turn = Callable[[float], None]
FLOW: dict[str, Any] = {
    "start": count("start", 1),
    "left": count("left", "${{ steps.start.output + 1 }}", needs=["start"]),
    "left2": count("left2", "${{ steps.left.output + 1 }}", needs=["left"]),
    "right": count("right", 10, needs=["start"]),
    "flaky": {**fail("other", times=1), "needs": ["start"]},
    "each": {
        **count("each", "${{ item }}", needs=["start"]),
        "for_each": {"items": [1, 2, 3, 4], "max_parallel": 2},
    },
    "other_queue": count("other", 5, needs=["left2"], queue="engine"),
    "join": count(
        "join",
        "${{ steps.left2.output + steps.right.output + steps.other_queue.output }}",
        needs=["left2", "right", "other_queue", "each", "flaky"],
        join="strict",
    ),
    "tail": count("tail", "${{ steps.join.output }}", needs=["join"]),
}
ONCE = {"start": 1, "left": 1, "left2": 1, "right": 1, "each": 4, "other": 1, "join": 1, "tail": 1}


@pytest.fixture
def unreliable(carrier: Carrier) -> Callable[..., Carrier]:
    def make(**faults: Any) -> Carrier:
        other = Carrier(**faults)
        engine.set_dispatcher(other)
        return other

    assert ports.dispatcher() is carrier
    return make


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "faults",
    [
        {},
        {"lose": 0.3},
        {"lose": 1.0},
        {"double": 1.0},
        {"shuffle": True},
        {"lose": 0.3, "double": 0.4, "shuffle": True},
    ],
    ids=["all_well", "some_lost", "all_lost", "all_doubled", "shuffled", "everything"],
)
def test_a_run_ends_the_same_whatever_becomes_of_its_messages(
    unreliable: Callable[..., Carrier],
    turn_time: Turn,
    fusion: bool,
    faults: dict[str, Any],
    seed: int,
) -> None:
    carrier = unreliable(seed=seed, **faults)
    run_id = started(FLOW, max_parallel=3)
    if faults.get("lose") == 1.0:
        _beat_by_hand(carrier, turn_time)
    settle_down(carrier, turn_time)
    assert output(run_id) == {"tail": 18}
    assert dict(probes.calls) == ONCE


def _beat_by_hand(carrier: Carrier, turn_time: Turn) -> None:
    """Every message is lost at first; then the broker is well again, and the sweep sends anew."""
    for _ in range(3):
        carrier.run_all()
        turn_time(61)
        engine.beat_once()
        carrier.messages.clear()
    carrier.lose = 0


@pytest.mark.parametrize("seed", range(4))
def test_dropping_all_messages_at_any_point_costs_time_only(
    carrier: Carrier, turn_time: Turn, fusion: bool, seed: int
) -> None:
    rng = random.Random(seed)
    run_id = started(FLOW, max_parallel=3)
    for _ in range(rng.randint(1, 8)):
        if carrier.messages:
            carrier.run_one()
    carrier.messages.clear()
    settle_down(carrier, turn_time)
    assert output(run_id) == {"tail": 18}
    assert dict(probes.calls) == ONCE


def test_a_forged_message_is_nothing(carrier: Carrier) -> None:
    run = ran(carrier, {"w": {"type": "wait", "signal": "go"}, "a": count("a", needs=["w"])})
    before = (Run.objects.get(pk=run.pk).version, events(run))
    for key, scope in (("a", ""), ("w", ""), ("gone", ""), ("a", "[7]")):
        order = engine.Order(run_id=run.pk, key=key, scope=scope)
        assert engine.run_step(order, _Never()) == 0
    assert (Run.objects.get(pk=run.pk).version, events(run)) == before


class _Never:
    def takes_next(self, own_messages: Callable[[], int]) -> bool:
        return False


def test_a_step_of_a_dead_worker_is_taken_over(carrier: Carrier, turn_time: Turn) -> None:
    probes.hooks["once"] = probes.die
    run_id = started({"a": hook("once", 3), "z": say("${{ steps.a.output }}", needs=["a"])})
    kill(carrier)
    assert step(run_id, "a").state == "running"
    engine.beat_once()
    assert step(run_id, "a").state == "running"  # its lease is alive
    lose(run_id, "a")
    probes.hooks["once"] = lambda ctx: None
    engine.beat_once()
    carrier.run_all()
    assert output(run_id) == {"z": 3}
    assert (step(run_id, "a").attempt, step(run_id, "a").n_retries) == (2, 0)
    assert [a.outcome for a in Attempt.objects.filter(step__run=run_id)] == ["worker_lost"]


def test_a_step_that_lost_three_workers_is_quarantined(carrier: Carrier) -> None:
    probes.hooks["die"] = probes.die
    run_id = started({"a": hook("die", retry={"max_retries": 9, "on": []})})
    for _ in range(3):
        kill(carrier)
        lose(run_id, "a")
        engine.beat_once()
    assert (state(run_id), error(run_id)["class"]) == ("failed", "worker_lost")
    assert DeadLetter.objects.get(run=run_id).reason == "quarantined"


def test_an_item_of_a_dead_worker_is_taken_over(carrier: Carrier) -> None:
    lost: list[int] = []

    def once(ctx: Any) -> None:
        if not lost:
            lost.append(1)
            raise probes.Killed

    probes.hooks["once"] = once
    run_id = started({"a": hook("once", "${{ item }}", for_each={"items": [1, 2]})})
    kill(carrier)
    dead = Step.objects.get(run_id=run_id, state="running", index__isnull=False)
    lose(run_id, "a", dead.scope)
    engine.beat_once()
    carrier.run_all()
    assert output(run_id) == {"a": [1, 2]}


def test_a_for_each_whose_worker_dies_while_it_spreads_out_starts_anew(
    carrier: Carrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(name: str) -> None:
        if name == "performed":
            raise probes.Killed

    with monkeypatch.context() as patch:
        patch.setattr("orchestrator.engine.steps.crash_point", die)
        run_id = started({"a": say("${{ item }}", for_each={"items": [1, 2]})})
        kill(carrier)
    lose(run_id, "a")
    engine.beat_once()
    carrier.run_all()
    assert output(run_id) == {"a": [1, 2]}


@pytest.mark.parametrize("where", ["claimed", "performed", "settled"])
def test_a_worker_may_die_on_either_side_of_every_commit(
    carrier: Carrier, monkeypatch: pytest.MonkeyPatch, turn_time: Turn, fusion: bool, where: str
) -> None:
    rng = random.Random(where)

    def die(name: str) -> None:
        if name == where and rng.random() < 0.25:
            raise probes.Killed

    monkeypatch.setattr("orchestrator.engine.steps.crash_point", die)
    run_id = started({**FLOW, "flaky": say(1, needs=["start"])}, max_parallel=3)
    for _ in range(300):
        try:
            carrier.run_all()
        except probes.Killed:
            continue
        if state(run_id) != "running":
            break
        for row in Step.objects.filter(run_id=run_id, state="running", lease_until__isnull=False):
            Step.objects.filter(pk=row.pk).update(n_lost=0)  # bad luck is not what is tested
            lose(run_id, row.key, row.scope)
        engine.beat_once()
        if not carrier.messages:
            turn_time(61)
            engine.beat_once()
    assert output(run_id) == {"tail": 18}


def test_a_late_result_changes_nothing_and_is_kept(carrier: Carrier) -> None:
    """The lease ends while the body runs; another worker does the step; then the first answers."""
    run_id = started({"a": hook("slow", 1), "z": count("z", "${{ steps.a.output }}", needs=["a"])})

    def slow(ctx: Any) -> int:
        if ctx.attempt > 1:
            return 2
        lose(run_id, "a")
        engine.beat_once()
        carrier.run_all()
        assert state(run_id) == "completed"
        return 1

    probes.hooks["slow"] = slow
    carrier.run_all()
    assert output(run_id) == {"z": 2}
    assert events(run_id, "a").count("step.completed") == 1
    assert probes.calls["z"] == 1
    assert [a.outcome for a in Attempt.objects.filter(step__run=run_id)] == ["worker_lost", "late"]


def test_a_late_result_while_the_other_worker_still_works_changes_nothing(
    carrier: Carrier,
) -> None:
    run_id = started({"a": hook("slow")})
    seen: list[tuple[str, int]] = []

    def slow(ctx: Any) -> str:
        if ctx.attempt == 1:
            lose(run_id, "a")
            engine.beat_once()
            probes.hooks["slow"] = probes.die  # the second worker is at it, and dies
            kill(carrier)
            seen.append((step(run_id, "a").state, step(run_id, "a").attempt))
            return "late"
        return "in time"

    probes.hooks["slow"] = slow
    carrier.run_all()
    assert seen == [("running", 2)]
    assert step(run_id, "a").state == "running"
    probes.hooks["slow"] = slow
    lose(run_id, "a")
    engine.beat_once()
    carrier.run_all()
    assert output(run_id) == {"a": "in time"}


def test_a_body_over_its_time_loses_its_fence(carrier: Carrier) -> None:
    run_id = started({"a": hook("slow", retry={"max_retries": 0})})

    def slow(ctx: Any) -> None:
        hang(run_id, "a")
        engine.beat_once()

    probes.hooks["slow"] = slow
    carrier.run_all()
    assert (state(run_id), step(run_id, "a").state) == ("failed", "timed_out")
    assert Attempt.objects.filter(step__run=run_id, outcome="late").count() == 1


def test_a_lost_outbox_message_is_found_by_the_sweep(
    carrier: Carrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker dies between the child's end and telling the parent."""
    monkeypatch.setattr("orchestrator.engine.outbox.handle", lambda numbers: 0)
    again = {"type": "sub_workflow", "workflow": "flow", "when": "input.go", "input": {"go": False}}
    run = ran(carrier, {"p": again, "k": say(1)}, {"go": True}, pins={"flow": "self"})
    assert (state(run), run.waiting_for) == ("waiting", "child")
    monkeypatch.undo()
    engine.beat_once()
    carrier.run_all()
    assert state(run) == "completed"


def test_two_sweeps_after_another_do_no_harm(carrier: Carrier, turn_time: Turn) -> None:
    run_id = started(FLOW, max_parallel=3)
    carrier.messages.clear()
    for _ in range(3):
        turn_time(61)
        engine.beat_once()
        engine.beat_once()
    carrier.run_all()
    settle_down(carrier, turn_time)
    assert output(run_id) == {"tail": 18}
    assert dict(probes.calls) == ONCE


@pytest.mark.parametrize(
    "sql", ["UPDATE orchestrator_event SET actor = 'x'", "DELETE FROM orchestrator_event"]
)
def test_what_has_happened_cannot_be_changed(carrier: Carrier, sql: str) -> None:
    run = ran(carrier, {"a": say(1)})
    refused = pytest.raises(DatabaseError, match="append-only")
    with refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"{sql} WHERE run_id = %s", [run.pk])
    assert Event.objects.filter(run_id=run.pk).count() == 5


def test_every_move_has_a_version(carrier: Carrier, fusion: bool) -> None:
    run_id = started({"a": say(1), "b": say(2, needs=["a"])})
    seen = [Run.objects.get(pk=run_id).version]
    while carrier.messages:
        carrier.run_one()
        seen.append(Run.objects.get(pk=run_id).version)
    assert seen == sorted(set(seen))
    assert steps_of(Run.objects.get(pk=run_id)) == {"a": "completed", "b": "completed"}


def test_a_body_that_stood_still_past_its_lease_learns_it_by_its_heartbeat(
    carrier: Carrier,
) -> None:
    said: list[str] = []

    def body(ctx: ToolContext) -> None:
        ctx.heartbeat()
        said.append("mine")
        for held in engine.keeper._held.values():
            held.since -= 3600
        with pytest.raises(LeaseLost, match="somebody else may have it"):
            ctx.heartbeat()

    probes.hooks["body"] = body
    run = ran(carrier, {"a": hook("body", 1)})
    assert (state(run.pk), said) == ("completed", ["mine"])
