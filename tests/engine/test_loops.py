"""for_each, repeat and retry, run for real."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from orchestrator import engine
from orchestrator.models import Attempt, DeadLetter, Step
from tests.engine import probes
from tests.engine.carrier import Carrier
from tests.engine.runs import (
    NO_RETRY,
    count,
    error,
    events,
    fail,
    hang,
    hook,
    kill,
    n_timers,
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


def each(items: Any = "${{ input.xs }}", **more: Any) -> dict[str, Any]:
    return {"for_each": {"items": items, **more}}


def test_the_output_is_the_list_in_item_order(carrier: Carrier) -> None:
    carrier.shuffle = True
    steps = {
        "a": say("${{ [item, index] }}", **each()),
        "z": say("${{ steps.a.output }}", needs=["a"]),
    }
    run = ran(carrier, steps, {"xs": [5, 6, 7]})
    assert output(run) == {"z": [[5, 0], [6, 1], [7, 2]]}


def test_items_have_the_name_that_the_document_gives_them(carrier: Carrier) -> None:
    run = ran(carrier, {"a": say("${{ page + item }}", **each(**{"as": "page"}))}, {"xs": [1, 2]})
    assert output(run) == {"a": [2, 4]}


def test_an_empty_list_completes_with_an_empty_list(carrier: Carrier) -> None:
    run = ran(carrier, {"a": say(1, **each()), "z": say(2, needs=["a"])}, {"xs": []})
    assert output(run) == {"z": 2}
    assert step(run, "a").output == []


def test_failed_items_are_null_when_enough_succeed(carrier: Carrier) -> None:
    broken = "${{ item == 2 ? item / 0 : item }}"
    run = ran(carrier, {"a": say(broken, **each(min_success=2))}, {"xs": [1, 2, 3]})
    assert output(run) == {"a": [1, None, 3]}


def test_every_item_must_succeed_unless_told_otherwise(carrier: Carrier) -> None:
    run = ran(carrier, {"a": say("${{ 6 / item }}", **each())}, {"xs": [1, 0, 3]})
    assert (state(run), error(run)["class"]) == ("failed", "min_success")


def test_a_lost_loop_releases_no_more_items(carrier: Carrier) -> None:
    steps = {"a": {**count("body", "${{ 6 / item }}"), **each(max_parallel=1)}}
    run = ran(carrier, steps, {"xs": [0, 1, 2, 3]})
    assert state(run) == "failed"
    assert probes.calls["body"] == 0
    assert steps_of(run)["a[3]"] == "cancelled"


def test_a_list_that_is_none_is_a_condition_error(carrier: Carrier) -> None:
    run = ran(carrier, {"a": say(1, **each())}, {"xs": {"no": "list"}})
    assert error(run)["class"] == "condition_error"


@pytest.mark.parametrize(("own", "of_run", "most"), [(2, 10, 2), (10, 3, 3), (1, 1, 1)])
def test_no_more_items_are_at_work_than_both_bounds_allow(
    carrier: Carrier, own: int, of_run: int, most: int
) -> None:
    seen: list[int] = []

    def look(ctx: Any) -> None:
        states = ("ready", "running")
        seen.append(Step.objects.filter(state__in=states, index__isnull=False).count())

    probes.hooks["look"] = look
    steps = {"a": {**hook("look"), **each(max_parallel=own)}}
    run = ran(carrier, steps, {"xs": list(range(9))}, max_parallel=of_run)
    assert len(output(run)["a"]) == 9
    assert max(seen) <= most


def test_items_retry_each_for_itself(carrier: Carrier, turn_time: Turn) -> None:
    steps = {"a": {**fail("other", times=2, **each()), "retry": {"max_retries": 2}}}
    run = ran(carrier, steps, {"xs": [1, 2, 3]})
    settle_down(carrier, turn_time)
    assert output(run) == {"a": [None, None, None]}
    assert events(run, "a[1]").count("step.retry_scheduled") == 2


def test_items_may_wait_for_signals(carrier: Carrier) -> None:
    run = ran(carrier, {"a": {"type": "wait", "signal": "go", **each()}}, {"xs": [1, 2]})
    assert (state(run), steps_of(run)["a[1]"]) == ("waiting", "waiting")
    for number in (1, 2):
        engine.send_signal(run.pk, name="go", signal_id=f"{number}", payload=number, actor="me")
    carrier.run_all()
    assert sorted(output(run)["a"]) == [1, 2]


def test_repeat_sees_its_last_round_and_stops_when_told(carrier: Carrier, fusion: bool) -> None:
    grown = "${{ previous == null ? 1 : previous * 2 }}"
    run = ran(carrier, {"a": say(grown, repeat={"until": "output > 10", "max": 9})})
    assert output(run) == {"a": 16}
    assert step(run, "a").round == 5


def test_an_exhausted_repeat_fails_or_goes_on_as_told(carrier: Carrier) -> None:
    never = {"until": "output > 10", "max": 3}
    run = ran(carrier, {"a": say(1, repeat=never)})
    assert (state(run), error(run)["class"]) == ("failed", "repeat_exhausted")
    run = ran(carrier, {"a": say(1, repeat={**never, "on_exhausted": "continue"})})
    assert output(run) == {"a": 1}


def test_a_repeat_with_a_delay_waits_by_a_timer(carrier: Carrier, turn_time: Turn) -> None:
    grown = "${{ previous == null ? 1 : previous + 1 }}"
    repeat = {"until": "output >= 3", "max": 5, "delay": "1h"}
    run = ran(carrier, {"a": say(grown, repeat=repeat)})
    assert (state(run), n_timers(run)) == ("waiting", 1)
    turn_time(3590)
    engine.beat_once()
    assert state(run) == "waiting"
    settle_down(carrier, turn_time, by=3601)
    assert output(run) == {"a": 3}


def test_a_repeat_condition_that_errs_fails_the_step(carrier: Carrier) -> None:
    run = ran(carrier, {"a": say(1, repeat={"until": "output.done", "max": 3}, **NO_RETRY)})
    assert error(run)["class"] == "condition_error"


def test_repeat_inside_for_each_keeps_each_items_rounds(carrier: Carrier) -> None:
    grown = "${{ previous == null ? item : previous + item }}"
    steps = {"a": {**say(grown, repeat={"until": "output >= 4", "max": 9}), **each()}}
    assert output(ran(carrier, steps, {"xs": [1, 2, 5]})) == {"a": [4, 4, 5]}


def test_a_retry_waits_its_back_off_and_no_longer(carrier: Carrier, turn_time: Turn) -> None:
    retry = {"max_retries": 3, "base_delay": "10s", "max_delay": "15s"}
    run = ran(carrier, {"a": fail("other", times=2, retry=retry)})
    assert (state(run), steps_of(run)["a"]) == ("running", "retrying")
    turn_time(9)
    engine.beat_once()
    assert steps_of(run)["a"] == "retrying"
    turn_time(11.1)
    engine.beat_once()
    carrier.run_all()
    assert (steps_of(run)["a"], step(run, "a").attempt) == ("retrying", 2)
    turn_time(25.1)
    engine.beat_once()
    carrier.run_all()
    assert output(run) == {"a": None}
    assert [a.outcome for a in Attempt.objects.filter(step__run=run)] == ["retrying", "retrying"]


def test_retries_without_delay_are_counted_too(carrier: Carrier, fusion: bool) -> None:
    run = ran(carrier, {"a": fail("other", retry={"max_retries": 2, "base_delay": "0s"})})
    assert (state(run), step(run, "a").attempt) == ("failed", 3)


def test_what_gave_up_is_a_dead_letter_with_its_reason(carrier: Carrier) -> None:
    retry = {"max_retries": 1, "base_delay": "0s"}
    for kind, reason in (("permanent", "permanent"), ("other", "exhausted")):
        run = ran(carrier, {"a": fail(kind, retry=retry, service="crm")})
        letter = DeadLetter.objects.get(run=run)
        assert (letter.reason, letter.service, letter.tenant) == (reason, "crm", "acme")


def test_the_other_sides_wish_is_honoured_above_the_cap(carrier: Carrier, turn_time: Turn) -> None:
    retry = {"max_delay": "1s", "base_delay": "1s"}
    run = ran(carrier, {"a": fail("limited", times=1, retry=retry)})
    turn_time(99)
    engine.beat_once()
    assert steps_of(run)["a"] == "retrying"
    settle_down(carrier, turn_time)
    assert output(run) == {"a": None}


def test_a_body_over_its_time_is_retried_then_timed_out(carrier: Carrier) -> None:
    probes.hooks["die"] = probes.die
    retry = {"max_retries": 1, "base_delay": "0s"}
    run_id = started({"a": hook("die", timeout="20s", retry=retry)})
    for _ in range(2):
        kill(carrier)
        hang(run_id, "a")
        engine.beat_once()
    assert (state(run_id), error(run_id)["class"]) == ("failed", "timeout")
    assert step(run_id, "a").state == "timed_out"
    assert "step.timed_out" in events(run_id, "a")
