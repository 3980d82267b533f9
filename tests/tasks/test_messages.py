"""What stands in a message, read from the broker as Celery wrote it."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from tests.chaos import shapes
from tests.chaos.meddler import PREFIX, parsed
from tests.chaos.place import GIVEN, Place
from tests.chaos.storm import CALLER
from tests.tasks.conftest import CHORD, FuseEverywhere
from workflows_app.triggering import start

pytestmark = [pytest.mark.stack, pytest.mark.timeout(180)]


def messages(place: Place, queue: str) -> list[dict[str, Any]]:
    with place.world.redis() as client:
        return [parsed(raw) for raw in reversed(client.lrange(PREFIX + queue, 0, -1))]


def arguments(signature: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(signature["args"])


def test_a_stretch_on_one_queue_is_one_message_that_names_run_and_steps(quiet: Place) -> None:
    run = quiet.start(shapes.ONE_QUEUE)

    (message,) = messages(quiet, "tool")

    path = ">".join(f"s{n}" for n in range(1, 13))
    assert message["args"] == [str(run), path, []]
    assert message["headers"]["task"] == "orchestrator.run_step"
    assert str(run) in message["headers"]["argsrepr"]  # what Flower shows
    assert "s1>s2>s3" in message["headers"]["argsrepr"]
    assert message["headers"]["ignore_result"] is True
    assert (message["chain"], message["chord"]) == ([], None)


def test_a_stretch_that_changes_queue_is_a_chain(quiet: Place) -> None:
    run = quiet.start(shapes.CHAIN)

    (message,) = messages(quiet, "tool")

    links = [(link["args"][1], link["options"]["queue"]) for link in reversed(message["chain"])]
    assert message["args"][1] == "s1>s2"
    assert links == [
        ("s3", "agent"),
        ("s4", "engine"),
        ("s5", "tool"),
        ("s6", "compensation"),
        ("s7", "tool"),
        ("s8", "engine"),
        ("s9>s10", "tool"),
    ]
    assert all(link["args"][0] == str(run) for link in message["chain"])
    assert message["args"][2] == ["s3", "s4", "s5", "s6", "s7", "s8", "s9"]


def test_without_fusion_every_step_is_a_link_of_a_true_chain(
    quiet: Place, fused: FuseEverywhere
) -> None:
    fused(False)
    quiet.start(shapes.ONE_QUEUE)

    (message,) = messages(quiet, "tool")

    links = [link["args"][1] for link in reversed(message["chain"])]
    assert [message["args"][1], *links] == [f"s{n}" for n in range(1, 13)]


def test_branches_before_a_join_are_a_chord_whose_body_is_the_join(quiet: Place) -> None:
    run = quiet.start(CHORD)

    headers = messages(quiet, "tool") + messages(quiet, "agent")

    assert sorted(message["args"][1] for message in headers) == ["b0", "b1", "b2", "b3"]
    for message in headers:
        assert arguments(message["chord"]) == (str(run), "join", [])
        assert message["chord"]["options"]["queue"] == "tool"
        assert message["headers"]["ignore_result"] is False
        assert message["args"][2] == ["join"]


def test_every_message_of_a_canvas_carries_the_correlation_id_and_the_trace(quiet: Place) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    body = {"input": GIVEN, "correlation_id": "order-17"}
    start(CALLER, shapes.CHAIN.name, body, key=str(uuid4()), traceparent=trace)

    (message,) = messages(quiet, "tool")

    links = [link["options"]["headers"] for link in message["chain"]]
    for headers in (message["headers"], *links):
        assert headers["x-correlation-id"] == "order-17"
        assert headers["traceparent"] == trace


def test_a_message_holds_names_and_no_data(quiet: Place) -> None:
    quiet.start(shapes.CHAIN)

    with quiet.world.redis() as client:
        (raw,) = client.lrange(f"{PREFIX}tool", 0, -1)
    assert "sleep_ms" not in str(parsed(raw))
