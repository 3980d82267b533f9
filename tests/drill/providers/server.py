"""``python -m tests.drill.providers.server [--honours-keys]``: a provider double on a free port.

Says ``{"port": …}`` on its first line, and ends when its standard input does. Written on bare
streams, since it has to misbehave byte by byte.

    POST /charge, /refund, /send …      {"reference": …}, Idempotency-Key: applied, by its rules
    GET  /find/{operation}?key=|reference=     the entries
    GET  /listing?after=&limit=         everything applied, in order (what a nightly audit reads)
    GET  /stats                         {applied, calls, doubled}
    GET  /calls?operation=              how often each reference was called, applied or not
    POST /faults                        a list of faults (see ledger.Fault); they replace the former
    POST /forget                        an empty book
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.drill.providers.ledger import Fault, Ledger, as_json

MOST = 1 << 20
REASONS = {200: "OK", 201: "Created", 400: "Bad Request", 404: "Not Found", 422: "Unprocessable"}
REASONS |= {429: "Too Many Requests", 500: "Internal Server Error", 503: "Service Unavailable"}
AFTER = ("no_answer", "error_after", "half_body", "cut_after", "slow")


class Request:
    """What came in."""

    def __init__(self, method: str, target: str, headers: dict[str, str], body: bytes) -> None:
        parts = urlsplit(target)
        self.method, self.path = method, parts.path
        self.query = dict(parse_qsl(parts.query))
        self.headers = headers
        self.body: Any = json.loads(body) if body else None


class Server:
    """One provider: its book and its moods."""

    def __init__(self, *, honours_keys: bool, seed: int) -> None:
        self.ledger = Ledger(honours_keys)
        self.faults: list[Fault] = []
        self.random = random.Random(seed)

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, kept open from request to request."""
        try:
            while (request := await _read(reader)) is not None:
                if not await self._answer(request, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        """False: the connection ends."""
        if request.method == "POST" and request.path not in ("/faults", "/forget"):
            return await self._act(request, writer)
        status, body = self._tell(request)
        return await _send(writer, status, body)

    def _tell(self, request: Request) -> tuple[int, Any]:
        query, ledger = request.query, self.ledger
        match request.path.strip("/").split("/"):
            case ["faults"]:
                self.faults = [Fault(**each) for each in request.body]
                return 200, {"faults": len(self.faults)}
            case ["forget"]:
                ledger.forget()
                return 200, {}
            case ["find", operation]:
                key, reference = query.get("key", ""), query.get("reference", "")
                return 200, {"results": ledger.find(operation, key=key, reference=reference)}
            case ["listing"]:
                after, limit = int(query.get("after", 0)), int(query.get("limit", 1000))
                return 200, {"results": ledger.entries[after : after + limit]}
            case ["calls"]:
                wanted = query.get("operation")
                found = {r: n for (o, r), n in ledger.calls.items() if o == wanted}
                return 200, {"results": found}
            case ["stats"]:
                applied, calls = len(ledger.entries), sum(ledger.calls.values())
                return 200, {"applied": applied, "calls": calls, "doubled": ledger.doubled()}
        return 404, {"error": "there is nothing here"}

    async def _act(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        operation = request.path.strip("/")
        reference = str((request.body or {}).get("reference", ""))
        if not reference:
            return await _send(writer, 400, {"error": "a body has a reference"})
        self.ledger.calls[operation, reference] += 1
        fault = self._fault(operation, reference)
        kind = fault.kind if fault is not None else ""
        if kind == "error_before":
            return await _send(writer, 503, {"error": "try again later"})
        if kind == "limited":
            return await _send(writer, 429, {"error": "slower"}, {"Retry-After": "1"})
        if kind == "cut_before":
            return False
        status, answer = self.ledger.apply(
            operation, request.headers.get("idempotency-key"), request.body
        )
        if fault is None:
            return await _send(writer, status, answer)
        return await _misbehave(fault, writer, status, answer)

    def _fault(self, operation: str, reference: str) -> Fault | None:
        for fault in self.faults:
            if fault.times < 1 or fault.operation not in ("", operation):
                continue
            if reference.startswith(fault.prefix) and self.random.random() < fault.chance:
                fault.times -= 1
                return fault
        return None


async def _misbehave(fault: Fault, writer: asyncio.StreamWriter, status: int, answer: Any) -> bool:
    """It is applied; what the caller hears of it is another matter."""
    match fault.kind:
        case "no_answer":
            await asyncio.sleep(3600)
            return False
        case "error_after":
            return await _send(writer, 500, {"error": "something broke, afterwards"})
        case "half_body":
            whole = _whole(status, answer)
            writer.write(whole[: len(whole) - len(as_json(answer)) // 2])
            await writer.drain()
            return False
        case "slow":
            await asyncio.sleep(fault.delay_ms / 1000)
            return await _send(writer, status, answer)
        case _:  # cut_after
            return False


async def _read(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    except asyncio.IncompleteReadError:
        return None
    method, target, _ = head[0].split(" ", 2)
    headers = {}
    for line in head[1:]:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    body = await reader.readexactly(min(int(headers.get("content-length", 0)), MOST))
    return Request(method, target, headers, body)


def _whole(status: int, answer: Any, more: dict[str, str] | None = None) -> bytes:
    body = as_json(answer)
    lines = [f"HTTP/1.1 {status} {REASONS[status]}", "Content-Type: application/json"]
    lines += [f"{name}: {value}" for name, value in (more or {}).items()]
    lines += [f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


async def _send(
    writer: asyncio.StreamWriter, status: int, answer: Any, more: dict[str, str] | None = None
) -> bool:
    writer.write(_whole(status, answer, more))
    await writer.drain()
    return True


async def serve(*, honours_keys: bool, seed: int) -> None:
    """Serve until standard input ends."""
    provider = Server(honours_keys=honours_keys, seed=seed)
    server = await asyncio.start_server(provider.talk, "127.0.0.1", 0, backlog=512)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    over = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), over.set)
    await over.wait()


def main() -> None:
    """Read the words and serve."""
    words = argparse.ArgumentParser()
    words.add_argument("--honours-keys", action="store_true")
    words.add_argument("--seed", type=int, default=0)
    wanted = words.parse_args()
    asyncio.run(serve(honours_keys=wanted.honours_keys, seed=wanted.seed))


if __name__ == "__main__":
    main()
