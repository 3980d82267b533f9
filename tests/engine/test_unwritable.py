"""What no database can hold becomes the step's failure; nothing of it is met again and again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from orchestrator import engine
from orchestrator.core.errors import ErrorClass, InvalidRequest, StepError
from orchestrator.core.outcomes import EndRun, Failed, Outcome, Routed, Succeeded, Usage, Waiting
from orchestrator.engine import halting
from orchestrator.models import Alert, Effect, Outbox, Run, statements
from tests.engine import probes
from tests.engine.carrier import Carrier
from tests.engine.probes import wild
from tests.engine.runs import (
    NO_RETRY,
    error,
    hook,
    lose,
    output,
    ran,
    say,
    start,
    started,
    state,
    step,
    steps_of,
)
from tests.engine.test_children import child, family
from tests.engine.test_repair import repair

pytestmark = pytest.mark.django_db(transaction=True)
Turn = Callable[[float], None]
NUL = "a\x00b"
WILD = {"type": "wait", "for": "1h"}
PARKED = Waiting(kind="signal", key="go", why="waits")
LISTENS = {"type": "wait", "signal": "go"}
NESTED: Any = functools.reduce(lambda inner, _: [inner], range(9000), 1)


@pytest.fixture(autouse=True)
def _executors(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    probes.forget()
    executors = {
        **settings.ORCHESTRATOR["EXECUTORS"],
        "wait": "tests.engine.probes.Wild",
        "sub_workflow": "tests.engine.probes.WildChild",
    }
    settings.ORCHESTRATOR = {**settings.ORCHESTRATOR, "EXECUTORS": executors}
    monkeypatch.setattr(halting, "_met", halting._Met())


def refused(run: Run, *words: str) -> None:
    """The run failed with a sentence that says what could not be stored, and repeats none of it."""
    found = error(run)
    assert (state(run), found["class"]) == ("failed", "permanent")
    assert "could not be stored" in found["message"]
    assert NUL not in str(found)
    for word in words:
        assert word in found["message"]


def _failed(details: dict[str, Any]) -> Failed:
    error = StepError(error_class=ErrorClass.TRANSIENT, message="x", details=details)
    return Failed(error=error)


UNWRITABLE: dict[str, tuple[Outcome, str]] = {
    "count": (Succeeded(output=1, usage=Usage(tokens_in=2**63)), "a number is out of range"),
    "huge": (Succeeded(output=1, usage=Usage(tokens_in=2**80)), "64-bit"),
    "model": (Succeeded(output=1, usage=Usage(model="\ud800")), "surrogate"),
    "why": (Routed(routes=(), why=NUL), "why/: the text contains a NUL character"),
    "weighed": (Routed(routes=(), why="x", details={"n": {NUL: 1}}), "details/n: the text"),
    "key": (Waiting(kind="signal", key=NUL), "key/: the text contains a NUL"),
    "half": (Waiting(kind="signal", key="\ud800"), "key/: the text contains half"),
    "due": (Waiting(kind="timer", due=timedelta.max), "out of range"),
    "early end": (EndRun(output=[NUL], outcome="x"), "output/0: the text contains a NUL"),
    "details": (_failed({"set": {1, 2}}), "details/set: set is no JSON type"),
    "deep": (EndRun(output=NESTED, outcome="x"), "nested deeper than 64 levels"),
    "bytes": (EndRun(output=b"x", outcome="x"), "bytes is no JSON type"),
}


@pytest.mark.parametrize("name", UNWRITABLE)
def test_an_answer_that_cannot_be_written_fails_its_step_at_once(
    carrier: Carrier, name: str
) -> None:
    wild["execute"], words = UNWRITABLE[name]

    run = ran(carrier, {"a": WILD})

    refused(run, words)
    assert step(run, "a").attempt == 1


def test_fallback_and_saga_follow_as_after_any_failure(carrier: Carrier) -> None:
    wild["execute"] = Routed(routes=(), why=NUL)
    undo = {"tool": "probe.count", "input": {"name": "undone"}, "effect": {"key": "undo"}}

    covered = ran(carrier, {"a": WILD | {"fallback": "b"}, "b": say("spare")})
    undone = ran(carrier, {"pay": say(1, compensate=undo), "a": WILD | {"needs": ["pay"]}})

    assert output(covered) == {"a": "spare"}
    refused(undone)
    assert (undone.compensation, probes.calls["undone"]) == ("full", 1)


def test_who_settles_is_not_blamed_for_what_comes_next(
    carrier: Carrier, fusion: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The input of the next effect is too large, and the settle that would claim it holds both."""
    monkeypatch.setattr(statements, "MAX_JSON_BYTES", 6000)
    twice = "${{ steps.a.output + steps.a.output + steps.a.output }}"
    steps = {
        "a": say("x" * 2500, effect={"key": "first"}),
        "b": say(twice, needs=["a"], effect={"key": "second"}),
    }

    run = ran(carrier, steps)

    refused(run, "the step's input", "too large")
    assert (steps_of(run)["a"], step(run, "b").attempt) == ("completed", 1)
    assert [e.idempotency_key for e in Effect.objects.all()] == ["first"]


def test_an_input_that_is_stored_late_fails_its_own_step(
    carrier: Carrier, fusion: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain step is claimed before its input is worked out; then its settle stores it."""
    monkeypatch.setattr(statements, "MAX_JSON_BYTES", 6000)
    large = "${{ steps.a.output + steps.a.output + steps.a.output }}"
    counted = {"name": "b", "value": large}
    steps = {
        "a": say("x" * 2500),
        "b": {"type": "tool", "tool": "probe.count", "needs": ["a"], "input": counted},
    }

    run = ran(carrier, steps)

    refused(run, "too large")
    assert (steps_of(run)["a"], steps_of(run)["b"]) == ("completed", "failed")


@pytest.mark.parametrize("money", [False, True])
def test_what_an_effect_answered_is_in_doubt_when_it_cannot_be_stored(
    carrier: Carrier, monkeypatch: pytest.MonkeyPatch, money: bool
) -> None:
    """It was done: nobody sends it again, and where it matters a person is asked."""
    monkeypatch.setattr(statements, "MAX_JSON_BYTES", 3000)
    probes.hooks["pay"] = lambda ctx: "y" * 4000
    step = hook("pay", effect={"key": "one", "money": money})

    run = ran(carrier, {"a": step})

    effect = Effect.objects.get()
    assert (effect.status, effect.response) == ("in_doubt", None)
    assert effect.reason.startswith("it was applied; what the step answered could not be stored")
    if not money:
        refused(run, "too large")
        return
    assert (state(run), Run.objects.get(pk=run.pk).waiting_for) == ("waiting", "review")
    named = {"effect_key": "one", "outcome": "applied", "output": {"ref": 1}}
    repair(run, "settle_effect", "a", **named)
    carrier.run_all()
    assert output(run) == {"a": {"ref": 1}}


def test_the_end_of_a_wait_that_cannot_be_written_fails_the_step(
    carrier: Carrier, turn_time: Turn
) -> None:
    wild["execute"] = Waiting(kind="timer", due=timedelta(minutes=1))
    wild["resume"] = Succeeded(output=NUL)
    run = ran(carrier, {"a": WILD})

    turn_time(61)
    engine.beat_once()

    refused(run, "what the end of the wait means", "a text holds a NUL character")


def test_a_signal_that_cannot_be_applied_fails_the_step_that_it_wakes(carrier: Carrier) -> None:
    wild["execute"], wild["resume"] = PARKED, Routed(routes=(), why="x", details={"n": NUL})
    run = ran(carrier, {"a": LISTENS})

    said = engine.send_signal(run.pk, name="go", signal_id="1", payload=1, actor="user:x")

    assert (said.applied, said.transition) == (True, "a: waiting -> failed")
    refused(run, "what the signal brought")
    again = engine.send_signal(run.pk, name="go", signal_id="1", payload=1, actor="user:x")
    assert (again.duplicate, again.applied) == (True, True)


@pytest.mark.parametrize("payload", [NUL, {"\ud800": 1}, {1, 2}, 2**70], ids=ascii)
def test_a_signal_that_cannot_be_stored_is_refused_to_its_sender(
    carrier: Carrier, payload: Any
) -> None:
    wild["execute"] = PARKED
    run = ran(carrier, {"a": LISTENS})

    with pytest.raises(InvalidRequest) as refusal:
        engine.send_signal(run.pk, name="go", signal_id="1", payload=payload, actor="user:x")

    assert (refusal.value.code, state(run)) == ("unstorable", "waiting")


def test_an_early_signal_fails_the_step_that_it_cannot_end(carrier: Carrier) -> None:
    wild["execute"], wild["resume"] = PARKED, Succeeded(output=NUL)
    run_id = started({"a": LISTENS})
    engine.send_signal(run_id, name="go", signal_id="1", payload=1, actor="user:x")

    carrier.run_all()

    refused(Run.objects.get(pk=run_id))


def test_a_decision_that_cannot_be_written_fails_the_gate(carrier: Carrier) -> None:
    wild["execute"] = Waiting(kind="person", key="a")
    wild["resume"] = EndRun(output=NUL, outcome="rejected")
    run = ran(carrier, {"a": WILD})

    named: dict[str, Any] = {"key": "a", "scope": "", "attempt": 1, "actor": "user:x"}
    assert engine.deliver_decision(run.pk, payload={"decision": "approved"}, **named)

    refused(run, "the decision")


def test_a_childs_end_that_cannot_be_written_fails_its_parents_step(carrier: Carrier) -> None:
    wild["resume"] = Succeeded(output={"k": NUL})
    blueprint = family({"k": say("${{ input.n }}")}, {"p": child()})
    run_id = start(blueprint, {"n": 1})

    carrier.run_all()

    refused(Run.objects.get(pk=run_id), "what was told")
    assert not Outbox.objects.exists()


@contextmanager
def never(rule: str) -> Iterator[None]:
    """The database takes no step row of another kind, whatever is tried."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"ALTER TABLE orchestrator_step ADD CONSTRAINT never CHECK ({rule}) NOT VALID"
        )
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE orchestrator_step DROP CONSTRAINT never")


def test_a_step_that_cannot_even_be_claimed_halts_its_run(carrier: Carrier) -> None:
    with never("state <> 'running'"):
        run = ran(carrier, {"a": say(1, effect={"key": "k"})})
        assert state(run) == "paused"
    (alert,) = Alert.objects.filter(closed_at=None)
    assert "the step's input could not be stored, nor could its failure" in alert.title

    engine.resume_run(run.pk, actor="user:x", reason="mended")
    carrier.run_all()

    assert output(run) == {"a": 1}
    assert not Alert.objects.filter(closed_at=None).exists()


def test_a_step_that_cannot_even_fail_is_quarantined_or_halted(carrier: Carrier) -> None:
    """Its worker gives up and its lease runs out; the third loss would be the end of it."""
    with never("state IN ('ready', 'running')"):
        run_id = started({"a": say(1, **NO_RETRY)})
        for _ in range(3):
            with pytest.raises(Exception, match="never"):
                carrier.run_all()
            lose(run_id, "a")
            engine.beat_once()
        assert state(run_id) == "paused"
        assert Alert.objects.get(closed_at=None).kind == "unreadable"
    engine.resume_run(run_id, actor="user:x", reason="mended")

    engine.beat_once()

    assert (state(run_id), error(run_id)["class"]) == ("failed", "worker_lost")


def test_a_message_that_cannot_be_written_is_put_off(carrier: Carrier, settings: Any) -> None:
    """A subscriber's value is refused by the database: it is not tried again at once for ever."""
    settings.ORCHESTRATOR = {
        **settings.ORCHESTRATOR,
        "SUBSCRIBERS": {"gate.closed": ["tests.engine.probes.spill"]},
    }
    wild["execute"] = Waiting(kind="person", key="a")
    run = ran(carrier, {"a": WILD})

    engine.cancel_run(run.pk, actor="user:x", reason="over")

    (left,) = Outbox.objects.filter(topic="gate.closed")
    assert (left.attempts, NUL in left.error) == (1, False)
    Outbox.objects.all().delete()
