"""An unreliable way between who sends wake-ups and who gets them.

Senders write to broker database 0, workers read from database 1; in between somebody loses every
message once, doubles every one, or hands them over in another order.
"""

from __future__ import annotations

import base64
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

import orjson
import redis

PREFIX = "wf:"
QUEUES = ("engine", "agent", "tool", "approval", "subworkflow", "compensation")

Message = tuple[bytes, bytes]  # queue key, what the broker holds
Trouble = Callable[["Meddler", Message], Sequence[Message]]


def read_url(url: str) -> str:
    """Where workers read when a meddler stands in between."""
    return urlsplit(url)._replace(path="/1").geturl()


def parsed(raw: bytes) -> dict[str, Any]:
    """A message as Celery wrote it: ``args``, ``headers``, and what it still carries."""
    envelope = orjson.loads(raw)
    args, _, carries = orjson.loads(base64.b64decode(envelope["body"]))
    return {
        "args": args,
        "headers": envelope["headers"],
        "chain": carries["chain"] or [],
        "chord": carries["chord"],
    }


def faithful(_: Meddler, message: Message) -> Sequence[Message]:
    """Hand over what comes."""
    return [message]


def lose_once(meddler: Meddler, message: Message) -> Sequence[Message]:
    """Whatever a message asks for, the first one that asks for it never arrives."""
    asked = str(parsed(message[1])["args"])
    meddler.asked[asked] += 1
    return [message] if meddler.asked[asked] > 1 else []


def double(_: Meddler, message: Message) -> Sequence[Message]:
    """Everything comes twice."""
    return [message, message]


def reorder(meddler: Meddler, message: Message) -> Sequence[Message]:
    """Messages are kept back and handed over by chance, the last ones when nothing comes."""
    meddler.kept.append(message)
    if len(meddler.kept) < 4:
        return []
    return [meddler.kept.pop(meddler.rng.randrange(len(meddler.kept)))]


def unreliable(meddler: Meddler, message: Message) -> Sequence[Message]:
    """By chance a message is doubled, lost, kept back (with those after it overtaking), or fine."""
    chance = meddler.rng.random()
    if chance < 0.10:
        meddler.done["doubled messages"] += 1
        return [message, message]
    if chance < 0.13:
        meddler.done["lost messages"] += 1
        return []
    if chance < 0.25 or meddler.kept:
        meddler.kept.append(message)
    if not meddler.kept:
        return [message]
    meddler.done["shuffled messages"] += 1
    if len(meddler.kept) < 6:
        return []
    return [meddler.kept.pop(meddler.rng.randrange(len(meddler.kept)))]


class Meddler:
    """Carries messages from database 0 to database 1 in a thread, with one kind of trouble."""

    def __init__(
        self, url: str, trouble: Trouble, *, seed: int = 0, patience_s: float = 0.1
    ) -> None:
        self.patience_s = patience_s  # so long nothing comes, then what was kept is handed over
        self.trouble = trouble
        self.rng = random.Random(seed)
        self.asked: Counter[str] = Counter()
        self.kept: list[Message] = []
        self.done: Counter[str] = Counter()
        self.taken: list[Message] = []
        self.handed: list[Message] = []
        self._from = redis.Redis.from_url(url)
        self._to = redis.Redis.from_url(read_url(url))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._carry, name="meddler")

    def __enter__(self) -> Meddler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._from.close()
        self._to.close()

    def _carry(self) -> None:
        keys = [PREFIX + queue for queue in QUEUES]
        while not self._stop.is_set():
            try:
                self._carry_one(keys)
            except redis.RedisError:  # the broker is away: what we held is lost with it
                self._stop.wait(0.1)

    def _carry_one(self, keys: Sequence[str]) -> None:
        message = self._from.brpop(keys, timeout=self.patience_s)
        if message is None:
            self._hand([self.kept.pop() for _ in range(len(self.kept))])
            return
        self.taken.append(message)
        self._hand(self.trouble(self, message))

    def _hand(self, messages: Sequence[Message]) -> None:
        for key, raw in messages:
            self.handed.append((key, raw))
            self._to.lpush(key, raw)

    def kinds(self) -> Counter[str]:
        """Which carriers came by: messages alone, in a chain, in a chord."""
        found: Counter[str] = Counter()
        for _, raw in self.taken:
            message = parsed(raw)
            if message["headers"]["task"] != "orchestrator.run_step":
                continue
            found["chord" if message["chord"] else "chain" if message["chain"] else "single"] += 1
        return found
