"""The short way to the broker: what it sends, and what becomes of what a worker has in hand."""

from __future__ import annotations

import socket
from base64 import b64decode
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import orjson
import pytest
from celery._state import _task_stack
from celery.signals import before_task_publish
from django.db import OperationalError
from kombu import Consumer

from config.celery import app
from orchestrator.core.decision import Ref
from orchestrator.engine.blueprints import compiled
from orchestrator.models import Run
from orchestrator.models.rows import read_run
from orchestrator.tasks import post, run_step
from orchestrator.tasks.dispatch import CeleryDispatcher
from orchestrator.tasks.post import pack, send
from tests.chaos import shapes
from tests.chaos.meddler import PREFIX
from tests.chaos.place import Place
from tests.chaos.processes import aimed_at

pytestmark = [pytest.mark.stack, pytest.mark.timeout(120)]

ARGS = [str(uuid4()), "draft>check", []]
HEADERS = {"x-correlation-id": "order-17", "traceparent": "00-4bf9-00f0-01"}
OWN = {"id", "root_id", "correlation_id", "delivery_tag", "origin", "reply_to"}


@pytest.fixture(autouse=True)
def fresh(quiet: Place) -> Iterator[None]:
    """Nothing is known of another test's broker."""
    post.forget()
    yield
    post.forget()


def raw(place: Place, queue: str = "tool") -> list[dict[str, Any]]:
    with place.world.redis() as client:
        return [orjson.loads(text) for text in client.lrange(PREFIX + queue, 0, -1)]


def without_own(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_own(each) for key, each in value.items() if key not in OWN}
    return value


def read_body(message: dict[str, Any]) -> Any:
    return orjson.loads(b64decode(message.pop("body")))


def test_the_message_is_the_one_that_celery_would_have_sent(quiet: Place) -> None:
    run_step.si(*ARGS).set(queue="tool", headers=HEADERS).apply_async()
    send([pack("tool", ARGS, HEADERS)])

    ours, celerys = raw(quiet)

    assert read_body(ours) == read_body(celerys)
    assert without_own(ours) == without_own(celerys)
    own = ours["headers"]["id"]
    assert own == ours["headers"]["root_id"] == ours["properties"]["correlation_id"]
    assert own != celerys["headers"]["id"]
    assert ours["properties"]["delivery_tag"] != celerys["properties"]["delivery_tag"]


def test_a_message_from_within_a_task_names_its_parent_as_celerys_does(quiet: Place) -> None:
    run_step.push_request(id="parent", root_id="root", called_directly=False)
    _task_stack.push(run_step)
    try:
        run_step.si(*ARGS).set(queue="tool").apply_async()
        send([pack("tool", ARGS, {})])
    finally:
        _task_stack.pop()
        run_step.pop_request()

    ours, celerys = (message["headers"] for message in raw(quiet))

    assert (ours["root_id"], ours["parent_id"]) == ("root", "parent")
    assert (celerys["root_id"], celerys["parent_id"]) == ("root", "parent")


def test_many_messages_go_in_one_trip_and_keep_their_order(quiet: Place) -> None:
    send([pack("tool", [ARGS[0], f"s{n}", []], {}) for n in range(5)])

    paths = [read_body(message)[0][1] for message in reversed(raw(quiet))]

    assert paths == ["s0", "s1", "s2", "s3", "s4"]


def test_a_connection_that_was_lost_meanwhile_is_made_again(quiet: Place) -> None:
    send([pack("tool", ARGS, {})])
    with quiet.world.redis() as client:
        client.client_kill_filter(_type="normal", skipme=True)

    send([pack("tool", ARGS, {})])

    assert len(raw(quiet)) == 2


def test_a_run_starts_although_no_message_can_be_made(quiet: Place) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # it does not listen
        url = f"redis://127.0.0.1:{nobody.getsockname()[1]}/0"
        with aimed_at(quiet.world.urls | {"BROKER_URL": url}):
            run = quiet.start(shapes.ONE_QUEUE)

    assert Run.objects.get(pk=run).state == "pending"
    assert raw(quiet) == []


def test_nothing_is_sent_for_what_was_not_committed(quiet: Place) -> None:
    run = quiet.start(shapes.ONE_QUEUE)
    with quiet.world.redis() as client:
        client.flushall()
    row, workflow, refs = _as_read(run)

    def fail() -> None:
        raise OperationalError("the database went away")

    with pytest.raises(OperationalError):
        CeleryDispatcher().dispatch_after(fail, row, workflow, refs)

    assert raw(quiet) == []


def test_who_listens_to_what_celery_sends_still_hears_it(quiet: Place) -> None:
    heard: list[str] = []

    def hear(headers: dict[str, Any], **_: Any) -> None:
        heard.append(headers["argsrepr"])

    before_task_publish.connect(hear)
    try:
        assert not post.is_open()
        run = quiet.start(shapes.ONE_QUEUE)
    finally:
        before_task_publish.disconnect(hear)

    assert len(heard) == 1
    assert str(run) in heard[0]
    assert post.is_open()


def test_a_worker_that_ends_gives_back_what_it_has_in_hand(quiet: Place) -> None:
    """And no copy of it stands in the broker meanwhile."""
    send([pack("tool", [ARGS[0], f"s{n}", []], {}) for n in range(3)])
    taken: list[Any] = []
    with app.connection_for_read() as link:
        channel = link.channel()
        channel.basic_qos(0, 2, False)
        queue = app.amqp.queues["tool"]
        consumer = Consumer(channel, [queue], callbacks=[lambda _, message: taken.append(message)])
        with consumer:
            for _ in range(2):
                link.drain_events(timeout=5)
            with quiet.world.redis() as client:
                assert client.keys(PREFIX + "unacked*") == []
                assert client.llen(PREFIX + "tool") == 1
            taken[0].ack()
        channel.close()

    left = sorted(read_body(message)[0][1] for message in raw(quiet))
    assert left == ["s1", "s2"]


def _as_read(run: Any) -> Any:
    row = read_run(run)
    assert row is not None
    return row, compiled(row.blueprint_id), [Ref(0)]
