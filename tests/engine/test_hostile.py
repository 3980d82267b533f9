"""What documents and tools bring in bad faith ends the step in a sentence, and no worker stops.

Each of these once left a run that no worker could take, or a result that nobody could write.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from orchestrator import engine
from orchestrator.authoring import ToolContext, Transient
from orchestrator.core.effects import MAX_KEY_BYTES
from orchestrator.models import Breaker, Effect
from tests.engine import probes
from tests.engine.carrier import Carrier
from tests.engine.runs import NO_RETRY, error, events, hook, ran, say, state
from tests.engine.test_replay import identical

pytestmark = pytest.mark.django_db(transaction=True)
Turn = Callable[[float], None]
LONG = random.Random(1).randbytes(MAX_KEY_BYTES).hex()  # no index could press it together


@pytest.fixture(autouse=True)
def _forget() -> None:
    probes.forget()


@pytest.mark.parametrize(
    "key", ["", "   ", None, True, [1], {"a": 1}, 1.5, LONG], ids=lambda key: str(key)[:12]
)
def test_a_key_that_is_none_fails_its_step_and_calls_nobody(carrier: Carrier, key: Any) -> None:
    step = say(1, effect={"key": "${{ input.key }}"})

    run = ran(carrier, {"a": step}, {"key": key})

    assert (state(run), error(run)["class"]) == ("failed", "condition_error")
    assert "an effect's key" in error(run)["message"]
    assert not Effect.objects.exists()


@pytest.mark.parametrize("key", ["order 1", 7, "é" * (MAX_KEY_BYTES // 2)])
def test_text_and_whole_numbers_are_keys(carrier: Carrier, key: Any) -> None:
    run = ran(carrier, {"a": say(1, effect={"key": "${{ input.key }}"})}, {"key": key})

    assert state(run) == "completed"
    assert Effect.objects.get().idempotency_key == str(key)


@pytest.mark.parametrize("key", ["", LONG, "a\x00b"])
def test_a_call_from_a_body_needs_a_key_as_well(carrier: Carrier, key: str) -> None:
    def body(ctx: ToolContext) -> Any:
        return ctx.call_tool("probe.say", {"value": 1}, key)

    probes.hooks["body"] = body
    run = ran(carrier, {"a": hook("body")})

    assert (state(run), error(run)["class"]) == ("failed", "permanent")
    assert "an effect's key" in error(run)["message"]


NUL = "${{ 'a\\x00b' }}"


@pytest.mark.parametrize(
    "last",
    [
        say(NUL, needs=["a"]),
        say(1, needs=["a"], effect={"key": NUL}),
        say(1, needs=["a"], for_each={"items": "${{ ['a\\x00b'] }}"}),
        {"type": "wait", "until": NUL, "needs": ["a"]},
        {"type": "wait", "until": "9999-12-31T23:59:59-23:59", "needs": ["a"]},
        {"type": "wait", "until": "0001-01-01T00:00:00+14:00", "needs": ["a"]},
    ],
)
def test_what_cannot_be_stored_fails_its_step_and_not_the_worker(
    carrier: Carrier, last: dict[str, Any]
) -> None:
    run = ran(carrier, {"a": say(1), "z": last})

    assert (state(run), error(run)["class"]) == ("failed", "condition_error")
    run.refresh_from_db()
    assert engine.picture(run).steps


def test_an_output_that_cannot_be_stored_fails_the_run(carrier: Carrier) -> None:
    run = ran(carrier, {"a": say(1)}, output={"x": NUL})

    assert (state(run), error(run)["class"]) == ("failed", "condition_error")


@pytest.mark.parametrize("wish", [1e18, float("nan"), float("inf"), -5])
def test_a_wish_for_patience_beyond_all_clocks_is_written_down_and_replayed(
    carrier: Carrier, turn_time: Turn, wish: float
) -> None:
    def body(ctx: ToolContext) -> Any:
        raise Transient("later", retry_after=wish)

    probes.hooks["body"] = body
    run = ran(carrier, {"a": hook("body", retry={"max_retries": 1})})

    assert events(run)[-1] == "step.retry_scheduled"
    assert identical(run)


def test_a_key_under_way_elsewhere_says_nothing_about_the_service(carrier: Carrier) -> None:
    def doubt(ctx: ToolContext) -> Any:
        raise Transient("the answer is lost")

    probes.hooks["body"] = doubt
    step = hook("body", effect={"key": "one"}, service="outside", **NO_RETRY)
    asked = ran(carrier, {"a": step})
    assert state(asked) == "waiting"
    for _ in range(6):
        assert "under way elsewhere" in error(ran(carrier, {"a": step}))["message"]

    assert not Breaker.objects.exists()
