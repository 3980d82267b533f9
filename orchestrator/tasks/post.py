"""The short way to the broker for a wake-up that stands alone.

Celery takes 0.3 to 0.5 ms of CPU to make and send a message, most of it the same each time. So it
makes one for each queue, and the others are copies of that with their own ids and arguments, put
on the same list of the broker by one command. Whatever is out of the ordinary (another broker,
somebody who listens to Celery's signals, sent events for Flower) goes Celery's own way.
"""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast
from uuid import uuid4

import orjson
from celery import current_app
from celery.signals import after_task_publish, before_task_publish
from kombu.transport import redis as lists
from redis.backoff import NoBackoff
from redis.connection import Connection, parse_url
from redis.exceptions import ConnectionError as BrokerGoneError
from redis.exceptions import TimeoutError as BrokerSlowError
from redis.retry import Retry

from orchestrator.tasks.steps import run_step

_SOCKET = ("socket_timeout", "socket_connect_timeout", "socket_keepalive")

Parcel = tuple[bytes, bytes]
"""The broker's list, and the message."""


@dataclass(frozen=True, slots=True)
class _Mould:
    """A message of Celery's for a queue: ``whole`` but for the body, whose third part is
    ``embed``."""

    key: bytes
    whole: Mapping[str, Any]
    embed: Mapping[str, Any]


_moulds: dict[str, _Mould] = {}
_idle: list[Connection] = []


def forget() -> None:
    """Nothing is known of a broker any more: this is another process, or the settings changed."""
    _moulds.clear()
    _idle.clear()
    _is_plain.cache_clear()


# A fork's copies would write into the parent's sockets, under the parent's name.
os.register_at_fork(after_in_child=forget)


def is_open() -> bool:
    """Whether nobody would miss what Celery does besides."""
    return not (before_task_publish.receivers or after_task_publish.receivers) and _is_plain()


@cache
def _is_plain() -> bool:
    """Whether the broker is one Valkey or Redis, without certificates of its own, and nobody is
    told of what is sent."""
    link = current_app.connection_for_write()
    return (
        not current_app.conf.task_send_sent_event
        and isinstance(link.transport, lists.Transport)
        and not isinstance(link.transport, lists.SentinelTransport)
        and not link.alt[1:]
        and not current_app.conf.broker_use_ssl
    )


def pack(queue: str, args: Sequence[Any], headers: Mapping[str, str]) -> Parcel:
    """A wake-up for ``run_step`` with these arguments, as Celery would send it.

    The first one for a queue asks the broker, and may raise its errors.
    """
    mould = _moulds.get(queue)
    if mould is None:
        mould = _moulds[queue] = _make_mould(queue)
    task_id = str(uuid4())
    sender = current_app.current_worker_task
    parent = None if sender is None else sender.request
    whole = {
        **mould.whole,
        "body": b64encode(orjson.dumps([args, {}, mould.embed])).decode(),
        "headers": {
            **mould.whole["headers"],
            **headers,
            "id": task_id,
            "root_id": task_id if parent is None else parent.root_id or parent.id,
            "parent_id": None if parent is None else parent.id,
            "argsrepr": repr(tuple(args)),
        },
        "properties": {
            **mould.whole["properties"],
            "correlation_id": task_id,
            "delivery_tag": str(uuid4()),
        },
    }
    return mould.key, orjson.dumps(whole)


def send(parcels: Sequence[Parcel]) -> None:
    """Put them on their lists, in order. Raises the broker's errors.

    A connection that was lost since its last use is made again, once: what was sent on it may then
    be there twice, which costs a look at a step that is no longer READY.
    """
    commands = [("LPUSH", key, message) for key, message in parcels]
    while _idle:
        try:
            return _send(_idle.pop(), commands)
        except (BrokerGoneError, BrokerSlowError, OSError):
            _idle.clear()
        except IndexError:  # another thread took the last one
            break
    _send(_connect(), commands)
    return None


def _send(link: Connection, commands: Sequence[tuple[str, bytes, bytes]]) -> None:
    try:
        link.send_packed_command(cast(Any, link.pack_commands(commands)), check_health=False)
        for _ in commands:
            link.read_response()
    except BaseException:
        link.disconnect()
        raise
    _idle.append(link)


def _connect() -> Connection:
    options = current_app.conf.broker_transport_options
    wanted = parse_url(current_app.connection_for_write().as_uri(include_password=True))
    kind = wanted.pop("connection_class", Connection)
    chosen = {name: options[name] for name in _SOCKET if name in options}
    link: Connection = kind(**wanted, **chosen, retry=Retry(NoBackoff(), 0))
    return link


def _make_mould(queue: str) -> _Mould:
    caught: list[tuple[str, dict[str, Any]]] = []
    with current_app.connection_for_write() as link:
        channel: Any = link.channel()
        prefix = getattr(channel, "global_keyprefix", "")

        def catch(name: str, message: dict[str, Any], **_: Any) -> None:
            caught.append((prefix + channel._q_for_pri(name, 0), message))  # noqa: SLF001

        channel._put = catch  # noqa: SLF001 - where every virtual transport hands a message over
        producer = current_app.amqp.Producer(channel)
        run_step.si("", "", []).set(queue=queue).apply_async(producer=producer, retry=False)
    ((key, whole),) = caught
    return _Mould(key.encode(), whole, orjson.loads(b64decode(whole["body"]))[2])
