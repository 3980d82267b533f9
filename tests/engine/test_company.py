"""What a lane claims, runs, settles and gives back together."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from orchestrator import crash, engine
from orchestrator.core.admission import Lane
from orchestrator.engine import company, hands, steps
from orchestrator.engine.pace import pace
from orchestrator.engine.work import Work, company_of_claim
from orchestrator.models import DeadLetter, Event, Run, Step, moves, rows
from orchestrator.models.moves import StaleFence
from tests.engine import probes
from tests.engine.carrier import Carrier
from tests.engine.guarded import work_on
from tests.engine.runs import (
    count,
    events,
    fail,
    hook,
    kill,
    lose,
    output,
    payload,
    say,
    settle_down,
    started,
    state,
    step,
    steps_of,
)

pytestmark = pytest.mark.django_db(transaction=True)

WIDTH = 6
KEYS = [f"b{n}" for n in range(WIDTH)]
SHORT = dict.fromkeys(("probe.say", "probe.count", "probe.hook", "probe.fail"), 0.0001)


@pytest.fixture(autouse=True)
def _known_to_be_short(carrier: Carrier, monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow this machine is: six bodies go in one hand, and a lane always looks."""
    monkeypatch.setattr(pace, "known", lambda: SHORT)
    monkeypatch.setattr(hands, "LOOK_S", -1)
    monkeypatch.setattr(hands, "TOGETHER_S", 60)


def fan(middle: Callable[[int], dict[str, Any]], **more: Any) -> UUID:
    return started(
        {
            "head": say(1),
            **{key: {**middle(n), "needs": ["head"]} for n, key in enumerate(KEYS)},
            "join": say("done", needs=KEYS),
        },
        **more,
    )


def claimed_together(run_id: UUID) -> list[Work]:
    """The head is settled, and all branches are in one hand."""
    head = steps.claim(engine.Order(run_id=run_id, key="head"))
    assert head is not None
    answer = steps.perform(head, max_items=10)
    work = steps.settle(head, answer, Lane(queue="tool", pace=SHORT))
    assert work is not None
    return [work, *work.company]


def answered(work: Work) -> tuple[Work, Any]:
    return work, steps.perform(work, max_items=10).outcome


def history_is_gapless(run_id: UUID) -> bool:
    found = list(Event.objects.filter(run_id=run_id).order_by("seq").values_list("seq", flat=True))
    return found == list(range(1, len(found) + 1))


def test_a_lane_settles_a_whole_hand_and_claims_the_next_in_one_transaction(
    carrier: Carrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: Counter[str] = Counter()
    monkeypatch.setattr(crash._Drill, "hook", lambda name: places.update([name]))
    run_id = fan(lambda n: count(KEYS[n]))
    work_on(run_id, "head")

    assert state(run_id) == "completed"
    assert history_is_gapless(run_id)
    for key in KEYS:
        assert events(run_id, key) == ["step.ready", "step.started", "step.completed"]
        assert (probes.calls[key], step(run_id, key).attempt) == (1, 1)
    # birth is not counted; head and six claims; six settles and the join's claim; the end
    assert places["apply:after"] + places["advance:after"] == 3
    assert {company_of_claim(step(run_id, key).worker) for key in KEYS} == {WIDTH - 1}
    assert company_of_claim(step(run_id, "join").worker) == 0


def test_items_of_a_for_each_are_done_by_the_handful(carrier: Carrier) -> None:
    items = list(range(20))
    each = count("each", "${{ item }}", for_each={"items": items, "max_parallel": 20})
    run_id = started({"each": each, "join": say("done", needs=["each"])}, max_parallel=20)
    carrier.run_all()

    assert step(run_id, "each").output == items
    assert (state(run_id), probes.calls["each"]) == ("completed", 20)
    assert any(company_of_claim(row.worker) for row in Step.objects.filter(run_id=run_id))
    assert history_is_gapless(run_id)


def test_what_the_bodies_said_and_were_given_is_stored_as_ever(carrier: Carrier) -> None:
    run_id = fan(lambda n: say({"n": n, "of": "${{ steps.head.output }}"}))
    carrier.run_all()

    for n, key in enumerate(KEYS):
        row = step(run_id, key)
        assert row.output == {"n": n, "of": 1}
        assert row.input == {"value": {"n": n, "of": 1}}
        assert (row.lease_until, row.timeout_at, row.error) == (None, None, None)
        assert row.finished_at is not None


def test_one_that_fails_among_them_is_settled_by_itself(carrier: Carrier) -> None:
    run_id = fan(lambda n: fail() if n == 2 else say(n), on_error="continue")
    carrier.run_all()

    found = steps_of(Run.objects.get(pk=run_id))
    assert found["b2"] == "failed"
    assert {found[key] for key in KEYS if key != "b2"} == {"completed"}
    assert state(run_id) == "completed"


def test_what_cannot_be_stored_fails_its_own_step_alone(carrier: Carrier) -> None:
    run_id = started(
        {
            "head": say(1),
            "bad": {
                "type": "tool",
                "tool": "probe.odd",
                "input": {"kind": "nul"},
                "needs": ["head"],
            },
            **{key: say(1, needs=["head"]) for key in KEYS},
        },
        on_error="continue",
    )
    carrier.run_all()

    assert step(run_id, "bad").state == "failed"
    assert {step(run_id, key).state for key in KEYS} == {"completed"}


# -- what has not begun ----------------------------------------------------------------------------


def test_a_pause_in_mid_hand_gives_back_what_has_not_begun(carrier: Carrier) -> None:
    def pause(ctx: Any) -> None:
        engine.pause_run(run_id, actor="me", reason="look first")

    probes.hooks["pause"] = pause
    run_id = fan(lambda n: hook("pause") if n == 1 else count("body"))
    carrier.run_all()

    assert (state(run_id), probes.calls["body"]) == ("paused", 1)
    rows = {key: step(run_id, key) for key in KEYS}
    assert [rows[key].state for key in KEYS] == ["completed"] * 2 + ["ready"] * 4
    assert {rows[key].attempt for key in KEYS[2:]} == {0}
    assert events(run_id, "b5") == ["step.ready", "step.started", "step.ready"]
    assert payload(run_id, "step.ready") == {"given_back": True}

    engine.resume_run(run_id, actor="me", reason="go on")
    carrier.run_all()
    assert (state(run_id), probes.calls["body"]) == ("completed", 5)
    assert {step(run_id, key).attempt for key in KEYS} == {1}


def test_a_cancellation_in_mid_hand_begins_no_other_body(carrier: Carrier) -> None:
    def cancel(ctx: Any) -> None:
        engine.cancel_run(run_id, actor="me", reason="enough")

    probes.hooks["cancel"] = cancel
    run_id = fan(lambda n: hook("cancel") if n == 1 else count("body"))
    carrier.run_all()

    assert (state(run_id), probes.calls["body"]) == ("cancelled", 1)
    assert [step(run_id, key).state for key in KEYS] == ["completed"] * 2 + ["cancelled"] * 4


def test_a_body_that_turns_out_long_keeps_nothing_else_from_beginning(
    carrier: Carrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hands, "STUCK_S", 0.0)
    given = threading.Event()
    give_back = steps._give_back

    def noted(rest: Any) -> None:
        give_back(rest)
        connection.close()
        given.set()

    monkeypatch.setattr(steps, "_give_back", noted)

    def wait(ctx: Any) -> None:
        assert given.wait(30)
        for _ in range(WIDTH - 1):  # others do them meanwhile
            carrier.run_one_or_none()

    probes.hooks["long"] = wait
    run_id = fan(lambda n: hook("long") if n == 0 else count("body"))
    work_on(run_id, "head")
    carrier.run_all()

    assert (state(run_id), probes.calls["body"]) == ("completed", WIDTH - 1)
    assert events(run_id, "b3").count("step.completed") == 1
    assert history_is_gapless(run_id)


def test_what_is_given_back_twice_or_late_is_left_alone(carrier: Carrier) -> None:
    run_id = fan(lambda n: count(KEYS[n]))
    held = claimed_together(run_id)
    assert company.give_back(held[1:]) == []
    before = events(run_id)

    assert company.give_back(held[1:]) == held[1:]
    steps._give_back(held[1:])
    assert events(run_id) == before
    steps.settle(held[0], steps.perform(held[0], max_items=10), Lane(queue="tool"))
    carrier.run_all()
    assert state(run_id) == "completed"


# -- lost ------------------------------------------------------------------------------------------


def test_a_worker_killed_in_mid_hand_blames_no_step(
    carrier: Carrier, turn_time: Callable[[float], None]
) -> None:
    """Each is tried again by itself; the attempt counts, the loss does not."""
    deaths: list[int] = []

    def die(ctx: Any) -> None:
        if not deaths:
            deaths.append(1)
            raise probes.Killed

    probes.hooks["die"] = die
    run_id = fan(lambda n: hook("die") if n == 3 else count("body"))
    kill(carrier)
    for key in KEYS:
        assert step(run_id, key).state == "running"
        lose(run_id, key)
    engine.beat_once()

    for key in KEYS:
        row = step(run_id, key)
        assert (row.n_lost, row.n_retries, row.attempt) == (0, 0, 1)
        assert [attempt.outcome for attempt in row.attempts.all()] == ["worker_lost"]
    settle_down(carrier, turn_time)
    assert state(run_id) == "completed"
    workers = [step(run_id, key).worker for key in KEYS]
    assert {company_of_claim(worker) for worker in workers} == {0}


def test_a_poison_body_in_a_hand_is_found_and_no_other_is_quarantined(
    carrier: Carrier, turn_time: Callable[[float], None]
) -> None:
    probes.hooks["die"] = probes.die
    run_id = fan(lambda n: hook("die") if n == 3 else count("body"), on_error="continue")
    for _ in range(4):
        kill(carrier)
        for row in Step.objects.filter(run_id=run_id, state="running"):
            lose(run_id, row.key)
        engine.beat_once()
    settle_down(carrier, turn_time)

    row = step(run_id, "b3")
    assert (row.state, row.n_lost, row.attempt) == ("failed", 3, 4)
    assert DeadLetter.objects.get(step=row).reason == "quarantined"
    assert {step(run_id, key).state for key in KEYS if key != "b3"} == {"completed"}


@pytest.mark.parametrize(
    "place", ["apply:before", "apply:after", "performed", "hand_settled", "settle_hand:committed"]
)
@pytest.mark.parametrize("nth", [2, 3, 5])
def test_dying_anywhere_in_a_hand_loses_leases_and_nothing_else(
    carrier: Carrier,
    monkeypatch: pytest.MonkeyPatch,
    turn_time: Callable[[float], None],
    place: str,
    nth: int,
) -> None:
    left = [nth]

    def die(name: str) -> None:
        if name == place:
            left[0] -= 1
            if left[0] == 0:
                raise probes.Killed

    run_id = fan(lambda n: say(n))
    with monkeypatch.context() as patch:
        patch.setattr(crash._Drill, "hook", die)
        with suppress(probes.Killed):
            carrier.run_all()
    for row in Step.objects.filter(run_id=run_id, state="running"):
        lose(run_id, row.key)
    settle_down(carrier, turn_time)

    assert output(run_id) == {"join": "done"}
    assert history_is_gapless(run_id)
    assert {step(run_id, key).n_lost for key in KEYS} == {0}


def test_one_of_a_hand_that_somebody_else_took_over_is_settled_late(
    carrier: Carrier, turn_time: Callable[[float], None]
) -> None:
    run_id = fan(lambda n: count("body", n))
    held = claimed_together(run_id)
    members = [answered(work) for work in held]
    taken = held[2].row
    lose(run_id, taken.key)
    engine.beat_once()
    work_on(run_id, taken.key, _Never())  # somebody else does it

    steps._settle_company(members, Lane(queue="tool", takes_next=False), alone=True)
    late = step(run_id, taken.key)
    assert sorted(attempt.outcome for attempt in late.attempts.all()) == ["late", "worker_lost"]
    assert late.attempt == 2
    assert {step(run_id, key).state for key in KEYS} == {"completed"}
    settle_down(carrier, turn_time)
    assert (state(run_id), events(run_id).count("step.completed")) == ("completed", WIDTH + 2)


def test_a_late_settle_of_a_whole_hand_changes_nothing(
    carrier: Carrier, turn_time: Callable[[float], None]
) -> None:
    run_id = fan(lambda n: count("body", n))
    held = claimed_together(run_id)
    members = [answered(work) for work in held]
    for work in held:
        lose(run_id, work.row.key)
    settle_down(carrier, turn_time)
    before = (state(run_id), events(run_id))

    assert steps._settle_company(members, Lane(queue="tool"), alone=True) is None
    assert (state(run_id), events(run_id)) == before


def test_a_step_that_was_tried_before_is_claimed_alone(
    carrier: Carrier, turn_time: Callable[[float], None]
) -> None:
    run_id = fan(lambda n: fail("transient", 1))
    carrier.run_all()
    assert {step(run_id, key).state for key in KEYS} == {"retrying"}
    assert {company_of_claim(step(run_id, key).worker) for key in KEYS} == {WIDTH - 1}

    settle_down(carrier, turn_time)
    assert {step(run_id, key).attempt for key in KEYS} == {2}
    assert {company_of_claim(step(run_id, key).worker) for key in KEYS} == {0}


# -- guards of the statement -----------------------------------------------------------------------


def _write(run_id: UUID, **more: Any) -> moves.Write:
    run = rows.read_run(run_id)
    assert run is not None
    compact = run.snapshot.pack()
    return moves.Write(
        run_id=run_id, version=run.version, compact=compact, state="running", worker="me", **more
    )


def test_a_hand_with_an_older_fence_changes_nothing(carrier: Carrier) -> None:
    run_id = fan(lambda n: count("body", n))
    held = claimed_together(run_id)
    carrier.damaged = True  # by hand
    before = (Run.objects.values().get(pk=run_id), events(run_id))
    settled = [
        {"id": str(w.row.id), "fence": w.row.fence - (n == 2), "to": "completed", "output": n}
        for n, w in enumerate(held)
    ]
    with pytest.raises(StaleFence):
        moves.apply_decision(_write(run_id, settled=settled))
    assert (Run.objects.values().get(pk=run_id), events(run_id)) == before
    assert {step(run_id, key).state for key in KEYS} == {"running"}


@pytest.mark.parametrize("spoilt", ["fence", "state"])
def test_what_is_not_ready_is_not_claimed_in_company(carrier: Carrier, spoilt: str) -> None:
    run_id = started({key: say(key) for key in KEYS}, max_parallel=WIDTH)
    carrier.damaged = True  # by hand
    found = [step(run_id, key) for key in KEYS]
    if spoilt == "state":
        Step.objects.filter(pk=found[3].pk).update(state="waiting")
    company = [
        {"id": str(s.pk), "fence": s.fence + (spoilt == "fence" and n == 3), "timeout_s": 60}
        for n, s in enumerate(found)
    ]
    with pytest.raises(StaleFence):
        moves.apply_decision(_write(run_id, company=company))
    assert {step(run_id, key).attempt for key in KEYS} == {0}


class _Never:
    def takes_next(self, own_messages: Callable[[], int]) -> bool:
        return False
