"""The two HTTP doors that runs are started through, and callers that knock at them.

One caller at a time waits for its answer; an open loop does not: its calls come when they are due,
however slow the answers are, and a call's time counts from when it was due.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection
from typing import Any, Protocol

import orjson

from bench import documents
from bench.options import PLAIN_PORT_VARIABLE, PORT_VARIABLE
from bench.plain import Layout
from bench.sides import Ours, Plain
from orchestrator.core.definition import canonical_json
from workflows_app import publishing
from workflows_app.models import ApiToken, Tenant
from workflows_app.principal import Scope

_HOST = "127.0.0.1"
_BODY = b'{"input":{}}'
_CREATED = 201
_numbers = itertools.count()


class Door(Protocol):
    """An address that starts a run for each POST."""

    port: int

    def headers(self) -> Mapping[str, str]:
        """Those of the next call."""
        ...

    def path(self, shape: str) -> str:
        """Where to POST to."""
        ...


@dataclass(frozen=True, slots=True)
class ProductDoor:
    """The API, by a bearer token; each call brings a key of its own."""

    port: int
    secret: str

    def headers(self) -> Mapping[str, str]:
        """As a client behind the proxy that ends TLS."""
        return {
            "Authorization": f"Bearer {self.secret}",
            "Content-Type": "application/json",
            "Idempotency-Key": f"{os.getpid()}-{next(_numbers)}",
            "X-Forwarded-Proto": "https",
        }

    def path(self, shape: str) -> str:
        """The shape's workflow."""
        return f"/v1/workflows/bench_{shape}"


@dataclass(frozen=True, slots=True)
class PlainDoor:
    """The bare view that sends a chain on a layout's queue."""

    port: int
    queue: str

    def headers(self) -> Mapping[str, str]:
        """Nothing but what it is."""
        return {"Content-Type": "application/json"}

    def path(self, shape: str) -> str:
        """The layout's queue; it knows chains of one only."""
        if shape != "single":
            raise ValueError(f"plain Celery's door starts no {shape}")
        return f"/{self.queue}"


def open_product(shape: str) -> ProductDoor:
    """The API's door for the bench: a tenant, a token, the shape published as a workflow."""
    tenant = Tenant.ensure(documents.TENANT)
    source = canonical_json(documents.value_of(shape))
    publishing.publish(documents.TENANT, source, publishing.JSON, actor="bench")
    _, secret = ApiToken.objects.issue(
        tenant, name="bench", actor="bench", scopes=[Scope.RUN_START], roles=[]
    )
    return ProductDoor(port=int(os.environ[PORT_VARIABLE]), secret=secret)


def open_plain(layout: Layout) -> PlainDoor:
    """The door of plain Celery for a layout."""
    return PlainDoor(port=int(os.environ[PLAIN_PORT_VARIABLE]), queue=layout.queue)


class _Caller:
    """Waits for each answer, on one connection that is kept."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._link = HTTPConnection(_HOST, door.port, timeout=30)

    def start(self, shape: str) -> str:
        """One call; the run's key."""
        self._link.request("POST", self._door.path(shape), _BODY, dict(self._door.headers()))
        answer = self._link.getresponse()
        text = answer.read()
        if answer.status != _CREATED:
            raise RuntimeError(f"{self._door.path(shape)} answered {answer.status}: {text!r}")
        return _key_of(text)


class OursOverHttp(Ours):
    """The product, started through its API."""

    def __init__(self, door: ProductDoor) -> None:
        super().__init__()
        self.name = "orchestrator over HTTP"
        self._caller = _Caller(door)

    def start(self, shape: str, given: Mapping[str, Any] | None = None) -> str:
        """A run by ``POST /v1/workflows/…``, with no input."""
        if given:
            raise ValueError("the bench sends no input over HTTP")
        return self._caller.start(shape)


class PlainOverHttp(Plain):
    """Plain Celery behind a bare view."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self.name = f"{layout.name} behind HTTP"
        self._caller = _Caller(open_plain(layout))

    def start(self, shape: str) -> str:
        """A chain of one by POST."""
        return self._caller.start(shape)


@dataclass(slots=True)
class Offer:
    """What became of the calls that were offered. ``started``: when each run's call was due, in
    ns of the monotonic clock; ``waits``: seconds from then to the answer."""

    rate: float
    connections: int
    seconds: float = 0.0
    waits: list[float] = field(default_factory=list)
    started: dict[str, int] = field(default_factory=dict)

    @property
    def answered(self) -> float:
        """Answers a second, from the first call to the last answer."""
        return len(self.waits) / self.seconds


def offer(door: Door, shape: str, *, rate: float, seconds: float, connections: int) -> Offer:
    """Call at random instants, ``rate`` a second on average, the same instants for each door.

    A call that finds all connections busy waits for one, and that wait is part of its time.
    """
    offered = Offer(rate, connections)
    due = arrivals(rate, seconds)
    asyncio.run(_offer(door, shape, offered, due))
    return offered


def arrivals(rate: float, seconds: float) -> Sequence[float]:
    """Instants of independent callers, in seconds from the beginning."""
    chance = random.Random(7)
    gaps = iter(lambda: chance.expovariate(rate), None)
    return list(itertools.takewhile(lambda at: at < seconds, itertools.accumulate(gaps)))


async def _offer(door: Door, shape: str, offered: Offer, due: Sequence[float]) -> None:
    links = [await asyncio.open_connection(_HOST, door.port) for _ in range(offered.connections)]
    began = time.monotonic() + 0.05
    calls = (began + at for at in due)
    async with asyncio.TaskGroup() as group:
        for reader, writer in links:
            group.create_task(_call(reader, writer, calls, offered, _writer(door, shape)))
    offered.seconds = time.monotonic() - began
    for _, writer in links:
        writer.close()


async def _call(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    calls: Iterator[float],
    offered: Offer,
    request: Callable[[], bytes],
) -> None:
    """One connection: it takes the next call that is due as soon as it is free."""
    for at in calls:
        await asyncio.sleep(at - time.monotonic())
        writer.write(request())
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        text = await reader.readexactly(length)
        if int(head[9:12]) != _CREATED:
            raise RuntimeError(f"answered {head[9:12]!r}: {text!r}")
        offered.waits.append(time.monotonic() - at)
        offered.started[_key_of(text)] = int(at * 1e9)


def _writer(door: Door, shape: str) -> Callable[[], bytes]:
    first = f"POST {door.path(shape)} HTTP/1.1\r\nHost: {_HOST}:{door.port}\r\n"
    first += f"Content-Length: {len(_BODY)}\r\n"

    def request() -> bytes:
        lines = "".join(f"{name}: {value}\r\n" for name, value in door.headers().items())
        return f"{first}{lines}\r\n".encode() + _BODY

    return request


def _key_of(text: bytes) -> str:
    key: str = orjson.loads(text)["instance_id"]
    return key.replace("-", "")
