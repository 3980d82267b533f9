"""Between uvicorn and Django: what a request becomes, and who is told to come back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from config import bridge
from config.bridge import Bridge, environ_of

SCOPE: dict[str, Any] = {
    "type": "http",
    "http_version": "1.1",
    "method": "POST",
    "scheme": "https",
    "path": "/v1/ä",
    "query_string": b"a=%20b",
    "headers": [
        (b"host", b"example.org"),
        (b"content-type", b"application/json"),
        (b"x-forwarded-proto", b"http"),
        (b"x_forwarded_proto", b"https"),
        (b"transfer-encoding", b"chunked"),
        (b"cookie", b"a=1"),
        (b"cookie", b"b=2"),
        (b"via", b"one"),
        (b"via", b"two"),
    ],
    "client": ("10.0.0.7", 4711),
    "server": ("127.0.0.1", 8000),
}


def test_a_request_becomes_what_django_reads() -> None:
    environ = environ_of(SCOPE, b"{}")

    assert environ["PATH_INFO"].encode("latin-1").decode() == "/v1/ä"
    assert environ["QUERY_STRING"] == "a=%20b"
    assert environ["CONTENT_LENGTH"] == "2"
    assert environ["CONTENT_TYPE"] == "application/json"
    assert "HTTP_TRANSFER_ENCODING" not in environ
    assert (environ["HTTP_COOKIE"], environ["HTTP_VIA"]) == ("a=1; b=2", "one,two")
    assert (environ["REMOTE_ADDR"], environ["wsgi.url_scheme"]) == ("10.0.0.7", "https")


def test_a_header_with_an_underscore_passes_for_no_other() -> None:
    assert environ_of(SCOPE, b"")["HTTP_X_FORWARDED_PROTO"] == "http"


class Slow:
    """Answers once it is let go; counts what reached it."""

    def __init__(self) -> None:
        self.go, self.busy = threading.Event(), threading.Event()
        self.reached = 0

    def __call__(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        self.reached += 1
        self.busy.set()
        self.go.wait(10)
        start("200 OK", [("Content-Type", "text/plain")])
        return iter([environ["wsgi.input"].read(), b"!"])


async def ask(application: Bridge, *parts: bytes) -> tuple[int, dict[bytes, bytes], bytes]:
    coming = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    coming.append({"type": "http.request", "body": b"", "more_body": False})
    sent: list[Any] = []

    async def receive() -> Any:
        return coming.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    await application(dict(SCOPE), receive, send)
    head, body = sent
    return head["status"], dict(head["headers"]), body["body"]


def test_a_body_in_chunks_arrives_whole() -> None:
    slow = Slow()
    slow.go.set()
    application = Bridge(slow, None, threads=1)

    status, headers, body = asyncio.run(ask(application, b"one ", b"two"))

    application.close()
    assert (status, headers[b"content-type"], body) == (200, b"text/plain", b"one two!")


def test_who_waits_too_long_for_a_thread_is_told_to_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = Slow()
    application = Bridge(slow, None, threads=1)

    async def crowd() -> list[Any]:
        asked = [asyncio.create_task(ask(application)) for _ in range(3)]
        await asyncio.to_thread(slow.busy.wait, 10)
        monkeypatch.setattr(bridge, "PATIENCE_S", 0.0)  # for all that did not get the thread
        slow.go.set()
        return await asyncio.gather(*asked)

    first, *late = asyncio.run(crowd())

    application.close()
    assert first[0] == 200
    assert slow.reached == 1
    for status, headers, body in late:
        assert (status, orjson.loads(body)["code"]) == (503, "unavailable")
        assert headers[b"content-type"] == b"application/problem+json"
        assert int(headers[b"retry-after"]) >= 1
