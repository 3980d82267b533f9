"""Django's synchronous side under uvicorn: a request is answered by one thread that stays.

Under ASGI Django makes a new thread for each request and goes to and fro between it and the event
loop some ten times: 3 ms of CPU a request, measured, where this takes 0.2. No view here is
asynchronous. Threads that stay keep their connection to the database, as workers do.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import orjson
from django.core.signals import request_finished, request_started
from django.db import close_old_connections, connections

from config.connections import look_at_connections
from config.problems import MEDIA_TYPE, crowded

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

MOST_BYTES = 8 * 1024 * 1024
"""Of a body; what is longer is cut off, and refused by whoever counts it."""
PATIENCE_S = 3.0
"""How long a request waits for a thread before it is told to come back."""
_PLAIN_NAMES = {"content-type": "CONTENT_TYPE", "content-length": "CONTENT_LENGTH"}


@dataclass(slots=True)
class _Answer:
    status: int = 500
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""


class Bridge:
    """An ASGI application for HTTP that runs ``wsgi`` in ``threads`` threads; anything else goes
    to ``other``."""

    def __init__(self, wsgi: Wsgi, other: Any, *, threads: int) -> None:
        self._wsgi = wsgi
        self._other = other
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="web")
        self._used: set[int] = set()
        # Django's own look would cost a round trip at the begin of each request.
        request_started.disconnect(close_old_connections)
        request_finished.disconnect(close_old_connections)

    def close(self) -> None:
        """End the threads and their connections; requests come no more."""
        everybody = threading.Barrier(max(len(self._used), 1))

        def end() -> None:
            everybody.wait()  # so that each thread takes one
            connections.close_all()

        for _ in range(everybody.parties):
            self._threads.submit(end)
        self._threads.shutdown()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._other(scope, receive, send)
            return
        body = await _read(receive)
        if body is None:
            return  # the caller has gone
        came = time.monotonic()
        environ = environ_of(scope, body)
        loop = asyncio.get_running_loop()
        answer = await loop.run_in_executor(self._threads, self._respond, environ, came)
        head = {"status": answer.status, "headers": answer.headers}
        await send({"type": "http.response.start", **head})
        await send({"type": "http.response.body", "body": answer.body})

    def _respond(self, environ: dict[str, Any], came: float) -> _Answer:
        if time.monotonic() - came > PATIENCE_S:
            return _told_to_come_back()
        self._used.add(threading.get_ident())
        look_at_connections()
        answer = _Answer()

        def start(status: str, headers: Iterable[tuple[str, str]], *_: Any) -> None:
            answer.status = int(status[:3])
            answer.headers = [
                (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers
            ]

        parts = self._wsgi(environ, start)
        try:
            answer.body = b"".join(parts)
        finally:
            if close := getattr(parts, "close", None):
                close()
        return answer


def environ_of(scope: Mapping[str, Any], body: bytes) -> dict[str, Any]:
    """The WSGI environment of an ASGI request. Names with an underscore are dropped: they would
    pass for the header with a hyphen, which a proxy may have checked."""
    host, port = scope.get("server") or ("localhost", 80)
    client = scope.get("client") or ("", 0)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": scope.get("root_path", ""),
        "PATH_INFO": scope["path"].encode().decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "SERVER_NAME": host,
        "SERVER_PORT": str(port or 0),
        "REMOTE_ADDR": client[0],
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope.get("scheme", "http"),
        "wsgi.input": BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        if "_" in name or name == "transfer-encoding":
            continue
        key = _PLAIN_NAMES.get(name) or "HTTP_" + name.upper().replace("-", "_")
        joint = "; " if name == "cookie" else ","
        environ[key] = f"{environ[key]}{joint}{value}" if key in environ else value
    environ["CONTENT_LENGTH"] = str(len(body))
    return environ


async def _read(receive: Receive) -> bytes | None:
    """The body, which may have come in chunks; None when the caller went away."""
    parts: list[bytes] = []
    size = 0
    while size <= MOST_BYTES:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        part = message.get("body", b"")
        parts.append(part)
        size += len(part)
        if not message.get("more_body"):
            break
    return b"".join(parts)


def _told_to_come_back() -> _Answer:
    problem = crowded()
    headers = {"content-type": MEDIA_TYPE, **{k.lower(): v for k, v in problem.headers.items()}}
    return _Answer(
        status=problem.status,
        headers=[(name.encode(), value.encode()) for name, value in headers.items()],
        body=orjson.dumps(problem.body()),
    )
