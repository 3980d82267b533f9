"""A carrier of wake-ups in this process: Celery's shape without a broker, and as unreliable as
a test asks. It fills the engine's ``Dispatcher`` port, and is no stand-in for the engine."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from uuid import UUID

from orchestrator import engine
from orchestrator.conf import engine_settings
from orchestrator.core.canvas import Chain, Chord, Stretch, carried_keys, compile_canvas
from orchestrator.core.compiled import CompiledWorkflow
from orchestrator.core.decision import Ref
from orchestrator.engine.ports import WakeUps
from orchestrator.models.rows import RunRow
from orchestrator.tasks.names import parse_path, path_of


class Always:
    """A worker that never gives way."""

    def takes_next(self, own_messages: Callable[[], int]) -> bool:
        return True


@dataclass
class Message:
    run_id: UUID
    path: str
    queue: str
    carried: tuple[str, ...] = ()
    then: list[Message] = field(default_factory=list)
    counts: _Count | None = None


@dataclass
class _Count:
    """A chord's counter: its body is sent when every header has returned."""

    left: int
    body: Message


class Carrier:
    """Messages in a deque. ``lose``, ``double`` are probabilities; ``shuffle`` reorders."""

    def __init__(self, *, seed: int = 0, lose: float = 0, double: float = 0, shuffle: bool = False):
        self.messages: deque[Message] = deque()
        self.sent: list[Message] = []
        self.random = random.Random(seed)
        self.lose, self.double, self.shuffle = lose, double, shuffle
        self.damaged = False  # a test that changes rows by hand says so: no run is sound then

    def dispatch(self, run: RunRow, workflow: CompiledWorkflow, refs: Sequence[Ref]) -> None:
        for canvas in compile_canvas(workflow, refs, fuse=engine_settings().fuse):
            carried = carried_keys(workflow, canvas)

            def message(stretch: Stretch, brings: tuple[str, ...]) -> Message:
                return Message(run.id, path_of(workflow, stretch.refs), stretch.queue, brings)

            match canvas:
                case Stretch():
                    self.push(message(canvas, carried))
                case Chain(links):
                    made = [message(link, carried) for link in links]
                    for first, second in pairwise(made):
                        first.then.append(second)
                    self.push(made[0])
                case Chord(headers, body):
                    count = _Count(len(headers), message(body, ()))
                    for header in headers:
                        one = message(header, carried)
                        one.counts = count
                        self.push(one)

    def dispatch_after(
        self,
        commit: Callable[[], None],
        run: RunRow,
        workflow: CompiledWorkflow,
        refs: Sequence[Ref],
    ) -> None:
        commit()
        self.dispatch(run, workflow, refs)

    def push(self, message: Message) -> None:
        self.sent.append(message)
        if self.random.random() < self.lose:
            return
        self.messages.append(message)
        if self.random.random() < self.double:
            self.messages.append(message)

    def dispatch_all(self, orders: Sequence[WakeUps]) -> None:
        """Each run's by itself."""
        for run, workflow, refs in orders:
            self.dispatch(run, workflow, refs)

    def depth(self, queue: str) -> int:
        return sum(1 for message in self.messages if message.queue == queue)

    def pop(self) -> Message:
        if self.shuffle:
            self.messages.rotate(self.random.randrange(len(self.messages)))
        return self.messages.popleft()

    def run_one(self) -> None:
        message = self.pop()
        key, scope = parse_path(message.path)
        order = engine.Order(run_id=message.run_id, key=key, scope=scope, carried=message.carried)
        engine.run_step(order, Always())
        for following in message.then:
            self.push(following)
        if message.counts is not None:
            message.counts.left -= 1
            if message.counts.left == 0:
                self.push(message.counts.body)

    def run_one_or_none(self) -> None:
        """Deliver one message, if there is one (left)."""
        if self.messages:
            self.run_one()

    def run_all(self, limit: int = 20_000) -> int:
        """Deliver until nothing is left; how many messages."""
        count = 0
        while self.messages:
            self.run_one()
            count += 1
            assert count < limit, "messages without end"
        return count
