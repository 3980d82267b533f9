"""A recorded history as replay reads it: lines in order, a look ahead, a difference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import orjson

from orchestrator.core.compiled import CompiledWorkflow
from orchestrator.core.decision import EventDraft, Ref

_MAX_SHOWN = 600
_PAGE = 200


class Recorded(NamedTuple):
    """One line of a run's history. ``step``: the key with its scope, empty for the run itself;
    ``at``: microseconds since 1970, as the database had it."""

    seq: int
    type: str
    step: str
    payload: dict[str, Any]
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first place where a replay and the record part. ``sequence`` 0: in a row, not in the
    history."""

    sequence: int
    expected: str
    recorded: str

    def __str__(self) -> str:
        where = f"at sequence {self.sequence}" if self.sequence else "in the rows"
        return f"{where}: expected {self.expected}; recorded {self.recorded}"

    def as_json(self) -> dict[str, Any]:
        """As it is stored and shown: ``{sequence, expected, recorded}``."""
        return {
            "sequence": self.sequence,
            "expected": self.expected[:_MAX_SHOWN],
            "recorded": self.recorded[:_MAX_SHOWN],
        }


class Diverged(Exception):
    """Replay and record part here."""

    def __init__(self, difference: Difference) -> None:
        super().__init__(str(difference))
        self.difference = difference


class Log:
    """The lines still to come."""

    def __init__(self, lines: Iterable[Recorded]) -> None:
        self._beside: dict[int, int] = {}
        self._trailing = 0
        self._lines = self._decisive(lines)
        self._ahead: list[Recorded] = []
        self._at = 0
        self._last = 0

    @property
    def last(self) -> int:
        """The sequence of the last line so far; at the end, of the whole history."""
        return self._last + self._trailing

    def _decisive(self, lines: Iterable[Recorded]) -> Iterator[Recorded]:
        """Without the calls that bodies made of tools and models: facts from which no decision
        follows."""
        n_beside = 0
        for line in lines:
            if line.type.startswith("call."):
                n_beside += 1
                continue
            if n_beside:
                self._beside[line.seq] = n_beside
                n_beside = 0
            yield line
        self._trailing = n_beside

    def peek(self, ahead: int = 0) -> Recorded | None:
        """The line that is ``ahead`` lines away; None past the end."""
        place = self._at + ahead
        if place < len(self._ahead):
            return self._ahead[place]
        del self._ahead[: self._at]
        self._at = 0
        self._ahead += islice(self._lines, max(ahead + 1 - len(self._ahead), _PAGE))
        return self._ahead[ahead] if ahead < len(self._ahead) else None

    def take(self) -> Recorded:
        """Go on by one line, which was looked at before; sequences have no gaps."""
        line = self._ahead[self._at]
        self._at += 1
        expected = self._last + 1 + self._beside.pop(line.seq, 0)
        if line.seq != expected:
            raise Diverged(
                Difference(
                    sequence=line.seq,
                    expected=f"sequence {expected}",
                    recorded=f"sequence {line.seq}: {shown(line)}",
                )
            )
        self._last = line.seq
        return line


def shown(line: Recorded | None) -> str:
    """A recorded line for people."""
    return "the end of the history" if line is None else _line(line.type, line.step, line.payload)


def shown_draft(draft: EventDraft, name: str) -> str:
    """A line that replay expects, for people."""
    return _line(draft.type, name, draft.payload)


def _line(kind: str, step: str, payload: dict[str, Any]) -> str:
    words = f"{kind} {step}" if step else kind
    return f"{words} {orjson.dumps(payload, default=str).decode()}" if payload else words


def name_of(workflow: CompiledWorkflow, ref: Ref | None) -> str:
    """How the history calls it: the key, with the item's scope."""
    if ref is None:
        return ""
    key = workflow.steps[ref.position].key
    return key if ref.item is None else f"{key}[{ref.item}]"
