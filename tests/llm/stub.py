"""A provider of models over real HTTP: OpenAI's chat completions and Anthropic's messages.

It answers as a test, or a model's script, says; it can refuse, dawdle, answer nonsense or hang up,
and it counts what it was asked. It is no mock: requests reach it through the product's own client.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One answer. ``uses`` are ``(tool as it was offered, arguments)``; arguments that are text go
    out as they are. ``raw`` replaces the whole body, ``status`` other than 200 is an error with
    ``text`` as its message. ``delay`` seconds pass before a byte is sent; ``cut``: the connection
    closes in the middle."""

    text: str = ""
    uses: Sequence[tuple[str, Any]] = ()
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    raw: bytes | None = None
    delay: float = 0.0
    cut: bool = False
    tokens: tuple[int, int] | None = (10, 5)


def say(text: Any) -> Reply:
    """Words, or JSON."""
    return Reply(text=text if isinstance(text, str) else json.dumps(text))


def use(name: str, arguments: Any, *more: tuple[str, Any]) -> Reply:
    """Ask for a tool, or for several at once; dots of names are dashes on the wire."""
    uses = [(tool.replace(".", "-"), given) for tool, given in ((name, arguments), *more)]
    return Reply(uses=uses)


def refuse(status: int, text: str = "no", **headers: str) -> Reply:
    """An error of the provider."""
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Reply(status=status, text=text, headers=named)


Script = Callable[[str, Json], Reply]


@dataclass
class ModelStub:
    """``replies`` by model: taken in order, the last one again and again. ``script`` answers where
    a model has none. ``asked`` keeps each request's body; ``n_asked`` counts by model."""

    port: int = 0
    replies: dict[str, list[Reply]] = field(default_factory=dict)
    script: Script = lambda model, body: say("ok")
    asked: list[Json] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    n_asked: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)
    gone: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def provider(self, **more: Any) -> Json:
        """Settings of a provider that speaks as OpenAI does."""
        return {"kind": "openai", "url": self.url, **more}

    def anthropic(self, **more: Any) -> Json:
        """Settings of a provider that speaks as Anthropic does."""
        return {"kind": "anthropic", "url": self.url.removesuffix("/v1"), **more}

    def reply_to(self, body: Json, headers: dict[str, str]) -> Reply:
        model = str(body.get("model"))
        with self.lock:
            self.asked.append(body)
            self.headers.append(headers)
            self.n_asked[model] += 1
            queue = self.replies.get(model)
            if queue:
                return queue.pop(0) if len(queue) > 1 else queue[0]
        return self.script(model, body)


def as_openai(model: str, reply: Reply) -> Json:
    message: Json = {"role": "assistant", "content": reply.text or None}
    if reply.uses:
        message["tool_calls"] = [
            {
                "id": f"call_{place}",
                "type": "function",
                "function": {"name": name, "arguments": _text(arguments)},
            }
            for place, (name, arguments) in enumerate(reply.uses)
        ]
    answer: Json = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": model,
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
    }
    if reply.tokens is not None:
        n_in, n_out = reply.tokens
        answer["usage"] = {"prompt_tokens": n_in, "completion_tokens": n_out}
    return answer


def as_anthropic(model: str, reply: Reply) -> Json:
    content: list[Json] = [{"type": "text", "text": reply.text}] if reply.text else []
    content += [
        {"type": "tool_use", "id": f"toolu_{place}", "name": name, "input": arguments}
        for place, (name, arguments) in enumerate(reply.uses)
    ]
    n_in, n_out = reply.tokens or (0, 0)
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": "end_turn",
        "usage": {"input_tokens": n_in, "output_tokens": n_out},
    }


def _text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


@contextmanager
def model_stub() -> Iterator[ModelStub]:
    """A stub that listens on loopback."""
    stub = ModelStub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            named = {name.lower(): value for name, value in self.headers.items()}
            reply = stub.reply_to(body, named)
            if reply.delay:
                stub.gone.wait(reply.delay)
            self._send(reply, body)

        def _send(self, reply: Reply, body: Json) -> None:
            data = reply.raw
            if data is None:
                data = json.dumps(self._answer(reply, str(body.get("model")))).encode()
            try:
                self.send_response(reply.status)
                self.send_header("Content-Type", "application/json")
                for name, value in reply.headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data[: len(data) // 2] if reply.cut else data)
            except (BrokenPipeError, ConnectionResetError):
                pass  # whoever asked has gone: that is what a timeout looks like from here
            self.close_connection = self.close_connection or reply.cut

        def _answer(self, reply: Reply, model: str) -> Json:
            if reply.status != 200:
                return {"error": {"message": reply.text, "type": "stub"}}
            if self.path.endswith("/messages"):
                return as_anthropic(model, reply)
            return as_openai(model, reply)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    stub.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield stub
    finally:
        stub.gone.set()
        server.shutdown()
        server.server_close()
        thread.join()
