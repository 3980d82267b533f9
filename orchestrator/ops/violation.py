"""One thing that must not be, by name."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Violation:
    """Where a rule is broken: the run, the step (empty: the run itself), and how."""

    rule: str
    run_id: UUID
    step: str
    words: str
