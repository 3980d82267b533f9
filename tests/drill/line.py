"""What a drill says: lines, each with a promise, how often it was tried, and what was broken."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

MINUTES = "DRILL_MINUTES"


class Size(StrEnum):
    """How much a drill does: QUICK is part of ``make test``, LONG goes for the figures."""

    QUICK = "quick"
    SHORT = "short"
    LONG = "long"


@dataclass(frozen=True)
class Line:
    """One row of the table.

    ``promise`` is its number ("P2", several as "P1 P4"); ``tried``: how often the promise was put
    to the test; ``broken``: one sentence for each time it did not hold, with what is needed to find
    the place again; empty when it held.
    """

    promise: str
    drill: str
    tried: int
    figures: dict[str, int | float | str] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    @property
    def held(self) -> bool:
        """Whether the promise held, and was put to the test at all."""
        return not self.broken and self.tried > 0

    def as_json(self) -> dict[str, Any]:
        """The fields, for a file of JSON lines."""
        return asdict(self) | {"held": self.held}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Line:
        """The same line again."""
        return cls(**{name: fields[name] for name in cls.__dataclass_fields__})


# Yields its lines as they are known; draws all chance from the seed. An exception is a line, too.
Drill = Callable[[Size, int], Iterator[Line]]


def minutes(default: float = 30) -> float:
    """How long a drill of size LONG may go on with what can be repeated without end."""
    return float(os.environ.get(MINUTES, default))
