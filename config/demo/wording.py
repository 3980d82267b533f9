"""From history events to lines that a newcomer understands. Pure: values in, text out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any

MICRO = 1_000_000
LONGEST_NOTE = 100
SHORT_WAIT = timedelta(milliseconds=500)
MINUTE = 60.0

# Sign, colour, and the words of each event that is worth a line.
_STEP_WORDS = {
    "step.started": (">", "cyan", "running"),
    "step.completed": ("+", "green", "completed"),
    "step.failed": ("x", "red", "failed"),
    "step.timed_out": ("x", "red", "timed out"),
    "step.retry_scheduled": ("~", "yellow", "will be tried again"),
    "step.skipped": ("-", "dim", "skipped"),
    "step.cancelled": ("-", "dim", "cancelled"),
    "step.waiting": ("=", "yellow", "waiting"),
    "gate.decided": ("*", "cyan", "decided"),
    "router.decided": ("*", "cyan", "chose"),
}
_RUN_WORDS = {
    "run.started": (">", "cyan", "started"),
    "run.paused": ("=", "yellow", "paused"),
    "run.resumed": (">", "cyan", "resumed"),
    "run.completed": ("+", "green", "completed"),
    "run.failed": ("x", "red", "failed"),
    "run.cancelled": ("x", "red", "cancelled"),
    "run.timed_out": ("x", "red", "timed out"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """One event of the history. ``after`` is the time since the run's start."""

    type: str
    step: str
    after: timedelta
    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the story; ``sign`` and ``colour`` say at a glance how it went."""

    after: timedelta
    sign: str
    colour: str
    who: str
    what: str
    note: str = ""


@dataclass(slots=True)
class Story:
    """Tells events in order. ``titles`` are the steps' titles by key, ``run`` the workflow's."""

    run: str
    titles: Mapping[str, str]
    _ready: dict[str, timedelta] = field(default_factory=dict)
    _began: dict[str, timedelta] = field(default_factory=dict)

    def tell(self, event: Happened) -> Line | None:
        """The line of an event; None when it adds nothing for a reader (``step.ready``)."""
        if event.type == "step.ready":
            self._ready[event.step] = event.after
            return None
        if event.type in _STEP_WORDS:
            return self._of_step(event)
        if event.type in _RUN_WORDS:
            sign, colour, what = _RUN_WORDS[event.type]
            return Line(
                after=event.after,
                sign=sign,
                colour=colour,
                who=self.run,
                what=what,
                note=_reason(event),
            )
        return None

    @property
    def width(self) -> int:
        """Room for the longest title."""
        return max(len(self.run), *(len(self.title(key)) for key in self.titles))

    def title(self, step: str) -> str:
        """What people call a step: its title, an item with its number; else its key in words."""
        key, bracket, scope = step.partition("[")
        title = self.titles.get(key) or key.replace("_", " ").capitalize()
        return f"{title} {bracket}{scope}".strip()

    def _of_step(self, event: Happened) -> Line:
        sign, colour, what = _STEP_WORDS[event.type]
        return Line(
            after=event.after,
            sign=sign,
            colour=colour,
            who=self.title(event.step),
            what=what,
            note=self._note(event),
        )

    def _note(self, event: Happened) -> str:
        if event.type == "step.started":
            self._began[event.step] = event.after
            return self._queued(event)
        if event.type == "step.completed" and event.step in self._began:
            return f"in {length(event.after - self._began[event.step])}"
        return _reason(event)

    def _queued(self, event: Happened) -> str:
        since = self._ready.get(event.step)
        if since is None or event.after - since < SHORT_WAIT:
            return ""
        return f"after {length(event.after - since)} in the queue"


def _reason(event: Happened) -> str:
    payload = event.payload
    if event.type == "gate.decided":
        words = (payload.get("decision"), payload.get("by") and f"by {payload['by']}")
        return " ".join(word for word in words if word)
    if event.type == "router.decided":
        return ", ".join(payload.get("routes") or ())
    if event.type == "step.retry_scheduled":
        return shortened(f"in {payload.get('delay_s', 0):g} s: {_message(payload)}")
    if event.type == "step.waiting":
        return shortened(str(payload.get("why") or payload.get("waiting_for") or ""))
    outcome = payload.get("outcome")
    if outcome and outcome != "succeeded":
        return f"outcome: {outcome}"
    return shortened(_message(payload) or str(payload.get("reason") or ""))


def _message(payload: Mapping[str, Any]) -> str:
    error = payload.get("error")
    return str(error.get("message", "")) if isinstance(error, Mapping) else ""


def shortened(text: str, longest: int = LONGEST_NOTE) -> str:
    """One line of at most ``longest`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def length(span: timedelta) -> str:
    """``40 ms``, ``12.0 s``, ``3 min 05 s``."""
    seconds = max(0.0, span.total_seconds())
    if seconds < 1:
        return f"{round(seconds * 1000)} ms"
    if seconds < MINUTE:
        return f"{seconds:.1f} s"
    return f"{int(seconds // MINUTE)} min {int(seconds % MINUTE):02d} s"


def money(microusd: int | None) -> str:
    """US dollars with as many decimals as it takes; ``unknown`` is never zero."""
    if microusd is None:
        return "unknown"
    if microusd == 0:
        return "-"
    text = f"{Decimal(microusd) / MICRO:.6f}".rstrip("0")
    whole, _, decimals = text.partition(".")
    return f"USD {whole}.{decimals.ljust(2, '0')}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int]) -> list[str]:
    """Lines of a plain table; the columns in ``right`` (from 0) are set to the right."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = [_cells(head, widths, right), _cells(["-" * width for width in widths], widths, right)]
    return [*lines, *(_cells(row, widths, right) for row in rows)]


def _cells(row: Sequence[str], widths: Sequence[int], right: Sequence[int]) -> str:
    cells = (
        text.rjust(widths[i]) if i in right else text.ljust(widths[i]) for i, text in enumerate(row)
    )
    return "  ".join(cells).rstrip()
