"""The compact state of a run: all that planning needs, a byte a step and a byte an edge.

It stands on the run row and is decided from in memory, so that a settle reads one row. Details
(inputs, outputs, errors) stand in the step rows.
"""

from __future__ import annotations

import struct
from dataclasses import asdict, dataclass, field, fields, replace
from enum import IntEnum
from typing import Any

import orjson

from orchestrator.core.states import StepState

FORMAT_VERSION = 2
_HEADER = struct.Struct("<BHIH")  # version, steps, edges (1 MiB can hold more than 65,535), running
QUEUED = 0x80
"""Bit beside READY: a message for the step is on its way, or a canvas carries it."""


class Code(IntEnum):
    """A step's state as one byte. The waits differ by what they wait for."""

    BLOCKED = 0
    READY = 1
    RUNNING = 2
    RETRYING = 3
    LOOPING = 4  # a for_each whose items are at work; shown as running
    COMPLETED = 5
    FAILED = 6
    SKIPPED = 7
    TIMED_OUT = 8
    CANCELLED = 9
    COMPENSATING = 10
    COMPENSATED = 11
    # what needs attention first comes first: the run shows the lowest of its waits
    WAIT_PERSON = 16
    WAIT_REVIEW = 17
    WAIT_BUDGET = 18
    WAIT_SERVICE = 19
    WAIT_SIGNAL = 20
    WAIT_CHILD = 21
    WAIT_TIMER = 22


WAIT_CODES: dict[str, Code] = {
    "person": Code.WAIT_PERSON,
    "review": Code.WAIT_REVIEW,
    "budget": Code.WAIT_BUDGET,
    "service": Code.WAIT_SERVICE,
    "signal": Code.WAIT_SIGNAL,
    "child": Code.WAIT_CHILD,
    "timer": Code.WAIT_TIMER,
}
WAIT_WORDS: dict[int, str] = {int(code): word for word, code in WAIT_CODES.items()}
ENDED = frozenset(
    map(int, (Code.COMPLETED, Code.FAILED, Code.SKIPPED, Code.TIMED_OUT, Code.CANCELLED))
) | {int(Code.COMPENSATED)}

_STATE_OF: dict[int, StepState] = {
    int(code): StepState(code.name.lower())
    for code in Code
    if code < Code.WAIT_PERSON and code is not Code.LOOPING
} | {int(Code.LOOPING): StepState.RUNNING}


class Mark(IntEnum):
    """What became of an edge."""

    OPEN = 0
    TAKEN = 1
    DEAD = 2


@dataclass(slots=True)
class Loop:
    """Counters of one for_each at work. ``ready`` and ``queued`` list item indexes; the rest are
    counts. ``released`` items are always the first so many, less those that a repair holds ready
    to be released ``again``."""

    total: int
    released: int = 0
    running: int = 0
    retrying: int = 0
    ok: int = 0
    failed: int = 0
    ready: list[int] = field(default_factory=list)
    queued: list[int] = field(default_factory=list)
    waits: dict[str, int] = field(default_factory=dict)
    again: list[int] = field(default_factory=list)

    def copy(self) -> Loop:
        """An independent copy."""
        return Loop(**{name: _own(getattr(self, name)) for name in _LOOP_FIELDS})

    def as_json(self) -> dict[str, Any]:
        """The counters as they are stored; shares its lists with the loop."""
        return {name: getattr(self, name) for name in _LOOP_FIELDS}

    @property
    def live(self) -> int:
        """Items released and not ended."""
        return self.released - self.ok - self.failed - len(self.again)

    @property
    def all_released(self) -> bool:
        """Whether no item is left to be released."""
        return self.released == self.total and not self.again

    @property
    def waiting(self) -> int:
        """Items parked."""
        return sum(self.waits.values())


def _own(value: Any) -> Any:
    return value.copy() if isinstance(value, list | dict) else value


_LOOP_FIELDS = tuple(field.name for field in fields(Loop))


@dataclass(slots=True)
class Verdict:
    """How the run shall end once its running bodies are done; nothing new starts meanwhile."""

    state: str
    outcome: str = ""
    error: dict[str, Any] | None = None
    step: str = ""


@dataclass(slots=True)
class Undo:
    """Finished steps of a run that stands paused, or is over, are being undone.

    ``back``: the state that the run comes back to; ``steps``: the positions of those steps;
    ``whole``: all of them, since the parent run failed.
    """

    back: str
    steps: list[int]
    whole: bool = False

    def copy(self) -> Undo:
        """An independent copy."""
        return Undo(self.back, self.steps.copy(), self.whole)


@dataclass(slots=True)
class Snapshot:
    """The compact state, unpacked.

    ``undo``: beside the run's own course some of its steps are being undone.
    ``acted`` are steps that did not complete and still did something: some items completed, or a
    child began. The saga undoes that too.
    ``held`` are failed steps whose policy paused the run; ``barred`` are steps that failed on a
    condition before they could start: they are never started, not even by a resume. ``reopened``
    are steps that a repair made BLOCKED again: they have a row from before.
    """

    codes: bytearray
    marks: bytearray
    running: int = 0
    paused: bool = False
    loops: dict[int, Loop] = field(default_factory=dict)
    held: list[int] = field(default_factory=list)
    barred: list[int] = field(default_factory=list)
    reopened: list[int] = field(default_factory=list)
    warnings: list[dict[str, Any]] = field(default_factory=list)
    verdict: Verdict | None = None
    undo: Undo | None = None
    acted: list[int] = field(default_factory=list)

    @classmethod
    def fresh(cls, n_steps: int, n_edges: int) -> Snapshot:
        """All blocked, all edges open."""
        return cls(codes=bytearray(n_steps), marks=bytearray(n_edges))

    def copy(self) -> Snapshot:
        """An independent copy for a planner to change."""
        extras = (self.loops, self.held, self.barred, self.reopened, self.warnings, self.acted)
        twin = Snapshot(bytearray(self.codes), bytearray(self.marks), self.running, self.paused)
        if any(extras) or self.verdict is not None or self.undo is not None:
            twin.loops = {position: loop.copy() for position, loop in self.loops.items()}
            twin.held, twin.barred = self.held.copy(), self.barred.copy()
            twin.reopened, twin.warnings = self.reopened.copy(), self.warnings.copy()
            twin.acted = self.acted.copy()
            twin.verdict = None if self.verdict is None else replace(self.verdict)
            twin.undo = None if self.undo is None else self.undo.copy()
        return twin

    def code(self, position: int) -> int:
        """The step's code without the queued bit."""
        return self.codes[position] & ~QUEUED

    def reach(self, n_steps: int) -> None:
        """Make room for steps that an earlier build did not know of: they are blocked."""
        if len(self.codes) < n_steps:
            self.codes.extend(bytes(n_steps - len(self.codes)))

    def runs(self, position: int, item: int | None) -> bool:
        """Whether the step, or some item of its loop, is running."""
        if item is None:
            return self.code(position) == Code.RUNNING
        loop = self.loops.get(position)
        return loop is not None and loop.running > 0

    def state(self, position: int) -> StepState:
        """The step's state in the words of the API."""
        code = self.code(position)
        return StepState.WAITING if code >= Code.WAIT_PERSON else _STATE_OF[code]

    def pack(self) -> bytes:
        """The bytes stored on the run row."""
        head = _HEADER.pack(FORMAT_VERSION, len(self.codes), len(self.marks), self.running)
        return b"".join((head, self.codes, self.marks, self._pack_extras()))

    def _pack_extras(self) -> bytes:
        extras: dict[str, Any] = {
            "paused": self.paused,
            "loops": self.loops and {str(p): loop.as_json() for p, loop in self.loops.items()},
            "held": self.held,
            "barred": self.barred,
            "reopened": self.reopened,
            "warnings": self.warnings,
            "verdict": asdict(self.verdict) if self.verdict else None,
            "undo": asdict(self.undo) if self.undo else None,
            "acted": self.acted,
        }
        extras = {name: value for name, value in extras.items() if value}
        return orjson.dumps(extras) if extras else b""


def unpack(data: bytes | memoryview) -> Snapshot:
    """The snapshot stored in ``data``; ValueError for another format version."""
    data = bytes(data)
    version, n_steps, n_edges, running = _HEADER.unpack_from(data)
    if version != FORMAT_VERSION:
        raise ValueError(f"compact state has format {version}, this build reads {FORMAT_VERSION}")
    steps_end = _HEADER.size + n_steps
    edges_end = steps_end + n_edges
    snapshot = Snapshot(
        codes=bytearray(data[_HEADER.size : steps_end]),
        marks=bytearray(data[steps_end:edges_end]),
        running=running,
    )
    if edges_end < len(data):
        _unpack_extras(snapshot, orjson.loads(data[edges_end:]))
    return snapshot


def _unpack_extras(snapshot: Snapshot, extras: dict[str, Any]) -> None:
    snapshot.paused = extras.get("paused", False)
    snapshot.loops = {int(p): Loop(**loop) for p, loop in extras.get("loops", {}).items()}
    snapshot.held = extras.get("held", [])
    snapshot.barred = extras.get("barred", [])
    snapshot.reopened = extras.get("reopened", [])
    snapshot.warnings = extras.get("warnings", [])
    snapshot.acted = extras.get("acted", [])
    if "verdict" in extras:
        snapshot.verdict = Verdict(**extras["verdict"])
    if "undo" in extras:
        snapshot.undo = Undo(**extras["undo"])
