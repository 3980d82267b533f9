"""Many at once: threads with connections of their own, over one real database."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from django.db import connection

from orchestrator import engine
from orchestrator.core.errors import StateConflict
from orchestrator.models import Run, Signal, Step
from tests.engine import probes
from tests.engine.carrier import Always, Carrier
from tests.engine.runs import count, events, output, ran, say, started, state, step, steps_of

WIDE = 50


def all_at_once(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """What each call returned or raised; each has its thread and connection, all start together."""
    start = threading.Barrier(len(calls))
    results: list[Any] = [None] * len(calls)

    def work(place: int) -> None:
        try:
            connection.ensure_connection()
            start.wait(timeout=60)
            results[place] = calls[place]()
        except Exception as error:  # noqa: BLE001 - the test looks at what was raised
            results[place] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=90)
    return results


def work_on(run_id: Any, key: str, scope: str = "") -> Callable[[], int]:
    order = engine.Order(run_id=run_id, key=key, scope=scope)
    return lambda: engine.run_step(order, Always())


def test_of_many_workers_that_claim_one_step_one_wins(carrier: Carrier) -> None:
    run_id = started({"a": count("a")})
    assert sorted(all_at_once([work_on(run_id, "a")] * 16)) == [0] * 15 + [1]
    assert probes.calls["a"] == 1
    assert state(run_id) == "completed"


def test_a_join_fires_once_though_all_its_branches_end_at_once(carrier: Carrier) -> None:
    branches = {f"b{n}": count("b") for n in range(WIDE)}
    run_id = started({**branches, "z": count("z", needs=list(branches))}, max_parallel=WIDE)
    carrier.messages.clear()
    results = all_at_once([work_on(run_id, key) for key in branches])
    assert not [result for result in results if isinstance(result, Exception)]
    carrier.run_all()
    assert state(run_id) == "completed"
    assert (probes.calls["b"], probes.calls["z"]) == (WIDE, 1)
    assert events(run_id, "z").count("step.ready") == 1


def test_a_loop_closes_once_though_its_items_end_at_once(carrier: Carrier) -> None:
    each = {"items": list(range(20)), "max_parallel": 20}
    steps = {"a": count("a", "${{ item }}", for_each=each), "z": count("z", needs=["a"])}
    run_id = started(steps, max_parallel=20)
    carrier.run_one()
    carrier.messages.clear()
    scopes = Step.objects.filter(run_id=run_id, state="ready").values_list("scope", flat=True)
    all_at_once([work_on(run_id, "a", scope) for scope in scopes])
    carrier.run_all()
    assert step(run_id, "a").output == list(range(20))
    assert (probes.calls["a"], probes.calls["z"]) == (20, 1)


def test_many_signals_at_once_are_each_consumed_once(carrier: Carrier) -> None:
    waits = {f"w{n}": {"type": "wait", "signal": "go"} for n in range(WIDE)}
    run = ran(carrier, waits, max_parallel=WIDE)

    def send(number: int) -> Callable[[], Any]:
        return lambda: engine.send_signal(
            run.pk, name="go", signal_id=f"{number}", payload=number, actor="me"
        )

    results = all_at_once([send(number) for number in range(WIDE)])
    assert all(result.applied for result in results)
    assert sorted(output(run).values()) == list(range(WIDE))
    taken = Signal.objects.filter(run=run).values_list("consumed_by", flat=True)
    assert len(set(taken)) == WIDE


def test_the_same_signal_from_many_is_one(carrier: Carrier) -> None:
    run = ran(
        carrier, {"a": {"type": "wait", "signal": "go"}, "b": {"type": "wait", "signal": "go"}}
    )

    def send() -> Any:
        return engine.send_signal(run.pk, name="go", signal_id="1", payload=1, actor="me")

    results = all_at_once([send] * 12)
    assert sorted(result.duplicate for result in results) == [False] + [True] * 11
    assert sorted(steps_of(run).values()) == ["completed", "waiting"]


def test_many_sweeps_at_once_fire_a_timer_once(carrier: Carrier, turn_time: Any) -> None:
    run = ran(carrier, {"a": {"type": "wait", "for": "1h"}, "z": count("z", needs=["a"])})
    turn_time(3601)
    all_at_once([engine.beat_once] * 8)
    carrier.run_all()
    assert state(run) == "completed"
    assert events(run).count("timer.fired") == 1
    assert probes.calls["z"] == 1


def test_pause_cancel_and_work_at_once_leave_a_sound_run(carrier: Carrier) -> None:
    for _ in range(5):
        branches = {f"b{n}": say(n) for n in range(8)}
        run_id = started({**branches, "z": say(1, needs=list(branches))}, max_parallel=8)
        carrier.messages.clear()

        def control(word: str, target: Any = run_id) -> Callable[[], Any]:
            act = getattr(engine, f"{word}_run")
            return lambda: act(target, actor="me", reason="")

        acts = [work_on(run_id, key) for key in branches]
        results = all_at_once([*acts, control("pause"), control("cancel"), control("resume")])
        odd = [r for r in results if isinstance(r, Exception) and not isinstance(r, StateConflict)]
        assert not odd
        carrier.run_all()
        assert state(run_id) in ("cancelled", "completed")


def test_many_runs_of_one_workflow_go_side_by_side(carrier: Carrier) -> None:
    ids = [started({"a": count("a"), "b": count("b", needs=["a"])}) for _ in range(12)]
    carrier.messages.clear()
    all_at_once([work_on(run_id, "a") for run_id in ids])
    carrier.run_all()
    assert set(Run.objects.values_list("state", flat=True)) == {"completed"}
    assert (probes.calls["a"], probes.calls["b"]) == (12, 12)
