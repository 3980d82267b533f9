"""Publishing to somebody else's message broker: one message, and the broker's word for it.

Valkey and Redis answer the push itself; AMQP is asked for publisher confirms. Without that word
nobody can say whether the message is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import orjson
from amqp.exceptions import AMQPError
from django.conf import settings
from kombu import Connection, Producer
from kombu.exceptions import KombuError
from redis import exceptions as redis_errors

from orchestrator.authoring import Permanent, Transient

MAX_MESSAGE_BYTES = 256 * 1024
DEFAULT_TIMEOUT_S = 10.0
_FAILURES = (KombuError, AMQPError, OSError, redis_errors.RedisError)
_SCHEMES = frozenset({"redis", "rediss", "amqp", "amqps"})
_QUEUES = ("engine", "agent", "tool", "approval", "subworkflow", "compensation", "celery")
_INNER = ("_kombu.", "unacked", "celery-task-meta-", "celeryev")
_BUSY = (
    redis_errors.BusyLoadingError,
    redis_errors.ReadOnlyError,
    redis_errors.OutOfMemoryError,  # type: ignore[attr-defined]
)
_NOT_NOW = ("OOM", "READONLY", "LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN")


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A broker by its name in documents; ``url`` is a secret and never shown."""

    name: str
    url: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message in JSON. Consumers know doubles by ``message_id``, which is the same each time."""

    queue: str
    body: Any
    message_id: str
    headers: Mapping[str, str] = field(default_factory=dict)
    correlation_id: str = ""
    timeout_s: float = DEFAULT_TIMEOUT_S


def publish(broker: Broker, message: Message) -> None:
    """Hand the message over; returns once the broker has said that it holds it.

    ``Permanent`` for what is refused; ``Transient`` with ``not_applied`` while the broker cannot be
    reached or takes nothing; ``Transient`` without it when its word did not come.
    """
    _require_foreign(message.queue)
    content = orjson.dumps(message.body)
    if len(content) > MAX_MESSAGE_BYTES:
        raise Permanent(f"message: more than {MAX_MESSAGE_BYTES:,} bytes")
    connection = _connection(broker, message)
    try:
        channel = _open(broker, connection)
        _send(broker, channel, message, content)
    finally:
        connection.release()


def _require_foreign(queue: str) -> None:
    """The engine's own queues carry wake-ups of the engine alone."""
    options: Mapping[str, Any] = getattr(settings, "ORCHESTRATOR", {})
    if queue in {*_QUEUES, *options.get("QUEUES", ())} or queue.startswith(_INNER):
        raise Permanent(f"queue: {queue} belongs to the engine: publish to a queue of your own")


def _connection(broker: Broker, message: Message) -> Connection:
    scheme = urlsplit(broker.url).scheme
    if scheme not in _SCHEMES:
        raise Permanent(
            f"the secret of broker {broker.name} is no address like redis://:password@host:6379/0"
            " or amqps://user:password@host//"
        )
    limit = max(0.1, message.timeout_s)
    options: dict[str, Any] = {"confirm_publish": True, "read_timeout": limit}
    if scheme.startswith("redis"):
        # A lost answer must be seen here, not sent again behind our back.
        options = {
            "socket_timeout": limit,
            "socket_connect_timeout": limit,
            "retry_on_timeout": False,
            "health_check_interval": 0,
        }
    return Connection(broker.url, connect_timeout=limit, transport_options=options)


def _open(broker: Broker, connection: Connection) -> Any:
    try:
        return connection.channel()
    except (redis_errors.AuthenticationError, redis_errors.NoPermissionError) as error:
        raise Permanent(f"broker {broker.name} refuses the name or the password") from error
    except _FAILURES as error:
        words = _words(broker, error)
        raise Transient(
            f"broker {broker.name} cannot be reached: {words}", not_applied=True
        ) from None


def _send(broker: Broker, channel: Any, message: Message, content: bytes) -> None:
    returned: list[str] = []
    if hasattr(channel, "events"):  # AMQP gives back what no queue takes, before it confirms
        channel.events["basic_return"].add(lambda *said: returned.append(str(said[:1])))
    producer = Producer(channel)
    try:
        producer.publish(
            content,
            routing_key=message.queue,
            exchange="",
            content_type="application/json",
            content_encoding="utf-8",
            headers=dict(message.headers),
            message_id=message.message_id,
            correlation_id=message.correlation_id or None,
            delivery_mode=2,
            mandatory=True,
            retry=False,
            timeout=message.timeout_s,
            confirm_timeout=message.timeout_s,
        )
    except redis_errors.ResponseError as error:
        raise _refused(broker, error) from error
    except _FAILURES as error:
        raise Transient(
            f"broker {broker.name} did not confirm the message: {_words(broker, error)}"
        ) from None
    if returned:
        raise Permanent(f"broker {broker.name} has no queue {message.queue}")


def _refused(broker: Broker, error: redis_errors.ResponseError) -> Permanent | Transient:
    """The broker answered, and said no: nothing was stored."""
    text = f"broker {broker.name} refuses the message: {_words(broker, error)}"
    if isinstance(error, _BUSY) or str(error).startswith(_NOT_NOW):
        return Transient(text, not_applied=True)
    return Permanent(text)


def _words(broker: Broker, error: Exception) -> str:
    """The error in short, without the broker's password."""
    text = f"{type(error).__name__}: {error}".partition("\n")[0][:200]
    password = urlsplit(broker.url).password
    return text.replace(password, "***") if password else text
