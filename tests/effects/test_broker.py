"""C39: messages to somebody else's broker, over a real Valkey: confirmed, or in doubt."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from kombu import Connection

from orchestrator import engine
from orchestrator.adapters.broker import Broker, Message, publish
from orchestrator.authoring import Permanent, Transient
from orchestrator.models import Effect
from tests.drill.proxy import Pattern, Proxy
from tests.engine.carrier import Carrier
from tests.engine.runs import error, output, ran, state, step


@pytest.fixture
def queue(monkeypatch: Any) -> str:
    """A queue of this test's own, on the broker that SECRET_BROKER_SHOP names."""
    monkeypatch.setenv("SECRET_BROKER_SHOP", os.environ["BROKER_URL"])
    return f"orders.{uuid4()}"


@pytest.fixture
def proxy(monkeypatch: Any, queue: str) -> Iterator[Proxy]:
    """The broker is reached through it."""
    url = urlsplit(os.environ["BROKER_URL"])
    through = Proxy((url.hostname or "127.0.0.1", url.port or 6379))
    password = f":{url.password}@" if url.password else ""
    address = f"redis://{password}127.0.0.1:{through.port}{url.path}"
    monkeypatch.setenv("SECRET_BROKER_SHOP", address)
    yield through
    through.close()


def consumed(queue: str) -> list[Any]:
    """Every message in the queue, as any consumer sees them."""
    found = []
    with Connection(os.environ["BROKER_URL"]) as connection:
        source = connection.SimpleQueue(queue)
        while True:
            try:
                message = source.get(block=False)
            except source.Empty:
                break
            message.ack()
            found.append(message)
        source.queue.delete()
        source.close()
    return found


def publishes(queue: str, *, effect: Any = None, **given: Any) -> dict[str, Any]:
    data = {"broker": "shop", "queue": queue, "message": {"order": 1, "note": "ä"}, **given}
    effect = {"key": "order:1", **(effect or {})}
    return {"type": "tool", "tool": "broker.publish", "input": data, "effect": effect}


def send(queue: str, **message: Any) -> None:
    broker = Broker(name="shop", url=message.pop("url", os.environ["BROKER_URL"]))
    publish(broker, Message(**{"queue": queue, "body": 1, "message_id": "m", **message}))


def test_a_message_arrives_with_the_key_that_tells_doubles_apart(
    carrier: Carrier, queue: str
) -> None:
    given = publishes(queue, headers={"kind": "order", "idempotency-key": "forged"})
    run = ran(carrier, {"a": given})

    (message,) = consumed(queue)
    assert message.payload == {"order": 1, "note": "ä"}
    assert message.content_type == "application/json"
    assert message.properties["message_id"] == "acme/order:1" == output(run)["a"]["message_id"]
    assert message.headers["idempotency-key"] == "order:1"
    assert (message.headers["kind"], message.headers["run-id"]) == ("order", str(run.pk))
    assert Effect.objects.get().external_ref == "acme/order:1"


def test_the_same_effect_is_published_once(carrier: Carrier, queue: str) -> None:
    first, second = (ran(carrier, {"a": publishes(queue)}) for _ in range(2))

    assert len(consumed(queue)) == 1
    assert output(first) == output(second)


@pytest.mark.parametrize("applied", [True, False])
def test_a_message_without_the_brokers_word_is_in_doubt_and_never_sent_again(
    carrier: Carrier, queue: str, proxy: Proxy, turn_time: Any, applied: bool
) -> None:
    trap = proxy.set_trap(lambda: Pattern(b"LPUSH"), applied=applied)

    run = ran(carrier, {"a": publishes(queue)})

    run.refresh_from_db()
    assert trap.sprung
    assert (run.state, run.waiting_for) == ("waiting", "review")
    assert "did not confirm" in Effect.objects.get().reason
    turn_time(3600)
    engine.beat_once()
    carrier.run_all()
    assert len(consumed(queue)) == (1 if applied else 0), "no blind second try"


def test_with_resend_the_double_has_the_same_id(
    carrier: Carrier, queue: str, proxy: Proxy, turn_time: Any
) -> None:
    proxy.set_trap(lambda: Pattern(b"LPUSH"), applied=True)
    run = ran(carrier, {"a": publishes(queue, effect={"on_doubt": "resend"})})
    assert step(run, "a").state == "retrying"

    turn_time(10)
    engine.beat_once()
    carrier.run_all()

    assert output(run)["a"]["queue"] == queue
    messages = consumed(queue)
    assert len(messages) == 2
    assert {m.properties["message_id"] for m in messages} == {"acme/order:1"}


def test_a_broker_that_cannot_be_reached_was_given_nothing(
    carrier: Carrier, queue: str, proxy: Proxy, turn_time: Any
) -> None:
    proxy.refuse()
    run = ran(carrier, {"a": publishes(queue)})
    assert (step(run, "a").state, Effect.objects.get().status) == ("retrying", "not_applied")

    proxy.heal()
    turn_time(10)
    engine.beat_once()
    carrier.run_all()

    assert output(run)["a"]["queue"] == queue
    assert len(consumed(queue)) == 1


@pytest.mark.parametrize(
    "name", ["engine", "tool", "compensation", "celery", "unacked", "_kombu.binding.x"]
)
def test_the_engines_own_queues_are_refused(name: str) -> None:
    with pytest.raises(Permanent, match="belongs to the engine"):
        send(name)


def test_a_queue_of_a_setting_is_the_engines_too(options: Any) -> None:
    options(QUEUES=("engine", "tool.erp"))
    with pytest.raises(Permanent, match="belongs to the engine"):
        send("tool.erp")


def test_a_list_that_is_none_is_the_brokers_refusal(queue: str) -> None:
    with Connection(os.environ["BROKER_URL"]) as connection:
        client = connection.default_channel.client
        client.set(queue, "x")
        try:
            with pytest.raises(Permanent, match="refuses the message"):
                send(queue)
        finally:
            client.delete(queue)


def test_a_message_is_bounded(queue: str) -> None:
    with pytest.raises(Permanent, match="more than"):
        send(queue, body="x" * (256 * 1024 + 1))


def test_a_broker_that_says_nothing_does_not_hold_the_worker(queue: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://:s3cret@127.0.0.1:{silent.getsockname()[1]}/0"
        with pytest.raises(Transient) as caught:
            send(queue, url=url, timeout_s=0.3)

    assert caught.value.not_applied
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("url", ["s3cret", "memory://s3cret", "filesystem://s3cret", ""])
def test_only_a_brokers_address_is_one(queue: str, url: str) -> None:
    with pytest.raises(Permanent, match="no address") as refused:
        send(queue, url=url)

    assert "s3cret" not in str(refused.value)
    assert "s3cret" not in repr(Broker(name="x", url=url))


@pytest.mark.parametrize("name", ["", " x", "a b", "a\nb", "\x06\x16", "x" * 201])
def test_a_queues_name_is_plain(carrier: Carrier, queue: str, name: str) -> None:
    run = ran(carrier, {"a": publishes(name)})

    assert (state(run), error(run)["class"]) == ("failed", "schema_error")
