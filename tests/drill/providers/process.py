"""The provider doubles as processes, and what a drill asks of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlencode

from config.env import BASE_DIR
from tests.drill.providers.ledger import Fault

__all__ = ["Fault", "Provider", "providers"]

KEYED_VARIABLE = "DRILL_KEYED_URL"
KEYLESS_VARIABLE = "DRILL_KEYLESS_URL"


class Provider:
    """A provider in a process of its own, which no drill ends: what it wrote, it knows."""

    def __init__(self, *, honours_keys: bool, seed: int = 0) -> None:
        command = [sys.executable, "-m", "tests.drill.providers.server", "--seed", str(seed)]
        self._process = subprocess.Popen(
            command + (["--honours-keys"] if honours_keys else []),
            cwd=BASE_DIR,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        self.port = int(json.loads(self._process.stdout.readline())["port"])
        self.url = f"http://127.0.0.1:{self.port}"
        self._lock = threading.Lock()

    def ask(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """One call, on a connection of its own."""
        target = f"{path}?{urlencode(query)}" if query else path
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, target, data, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = json.loads(response.read())
        finally:
            connection.close()
        assert response.status in (200, 201), (path, response.status, answer)
        return answer

    def act(self, operation: str, reference: str) -> None:
        """Something that others do there."""
        self.ask("POST", f"/{operation}", {"reference": reference})

    def set_faults(self, faults: Sequence[Fault]) -> None:
        """These befall the calls from now on; the former do not."""
        self.ask("POST", "/faults", [asdict(fault) for fault in faults])

    def entries(self, operation: str, reference: str) -> list[dict[str, Any]]:
        """What was applied of one affair."""
        found: list[dict[str, Any]] = self.ask("GET", f"/find/{operation}", reference=reference)[
            "results"
        ]
        return found

    def listing(self) -> list[dict[str, Any]]:
        """Everything that was ever applied, in order."""
        found: list[dict[str, Any]] = []
        while page := self.ask("GET", "/listing", after=len(found))["results"]:
            found += page
        return found

    def calls(self, operation: str) -> dict[str, int]:
        """How often each affair was called, applied or not."""
        return dict(self.ask("GET", "/calls", operation=operation)["results"])

    def stats(self) -> dict[str, Any]:
        """``applied``, ``calls`` and ``doubled`` (``[operation, reference]`` each)."""
        return dict(self.ask("GET", "/stats"))

    def forget(self) -> None:
        """An empty book, and no faults."""
        self.ask("POST", "/forget", {})
        self.set_faults([])

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


@contextmanager
def providers(seed: int = 0) -> Iterator[tuple[Provider, Provider]]:
    """One that honours keys and one that does not; the tools of ``tests.drill.app`` find them."""
    keyed = Provider(honours_keys=True, seed=seed)
    keyless = Provider(honours_keys=False, seed=seed)
    before = {name: os.environ.get(name) for name in (KEYED_VARIABLE, KEYLESS_VARIABLE)}
    os.environ |= {KEYED_VARIABLE: keyed.url, KEYLESS_VARIABLE: keyless.url}
    try:
        yield keyed, keyless
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        keyed.close()
        keyless.close()
