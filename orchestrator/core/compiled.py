"""A blueprint made ready to run: positions instead of names, expressions compiled once.

Built from the immutable document and cached in the process by digest; nothing here changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from orchestrator.core.expressions import Program, Template
from orchestrator.core.policies import Retry

SHARED_TIMEOUT_S = 5.0
"""A step that may take less is claimed by itself: its time runs from the claim on."""


class On(IntEnum):
    """Which end of the source step an edge follows."""

    COMPLETED = 1
    FAILED = 2
    SKIPPED = 3
    ANY = 4


class Join(IntEnum):
    """When a step with several needs may run (FORMAT section 1)."""

    ALL = 1
    STRICT = 2
    AT_LEAST = 3  # ``any`` is at least one


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """One dependency; ``route`` is set when a router's choice decides about it."""

    index: int
    source: int
    target: int
    on: On
    when: Program | None = None
    routes: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForEach:
    """Fan-out of one step over a list. ``min_success`` None: every item must succeed."""

    items: Template
    name: str
    max_parallel: int
    min_success: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """Rounds of one step until a condition holds; ``delay`` in seconds."""

    until: Program
    max_rounds: int
    delay: float
    fail_when_exhausted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """How needed outputs become the input of a step without ``input``."""

    kind: str
    expression: Program | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """One step, ready to run. ``rank`` is the longest remaining path, in steps, itself included.

    ``timeout_s`` limits one attempt's body; how long a wait may take is the executor's answer,
    except for a child (``child_timeout_s``; None: the child's own limit only).
    ``fallback`` is the position of the step that stands in when this one has given up; ``owner``
    the reverse. ``undoes`` is set on a compensation: the position of the step that it undoes; it
    starts when the run has failed, or by repair. ``must_know``: whether its effect happened decides
    what the run's saga has to do, so it may not give up in doubt. ``service`` is what it
    calls, ``breaker`` names the breaker that it belongs to; ``gates`` are the keys of the gates of
    its service and model. ``config`` is the step's block of the document as plain JSON.
    """

    position: int
    key: str
    type: str
    queue: str
    config: Mapping[str, Any]
    ins: tuple[Edge, ...]
    outs: tuple[Edge, ...]
    join: Join
    join_count: int
    late_cancel: bool
    when: Program | None
    optional: bool
    input: Template | None
    merge: Merge
    timeout_s: float
    child_timeout_s: float | None
    retry: Retry
    fallback: int | None
    owner: int | None
    on_error: str
    for_each: ForEach | None
    repeat: Repeat | None
    effect_key: Template | None
    rank: int
    irreversible: bool = False
    undoes: int | None = None
    service: str = ""
    breaker: str = ""
    gates: tuple[str, ...] = ()
    must_know: bool = False

    @property
    def handles_failure(self) -> bool:
        """Whether an edge takes this step's failure, so that it is not the run's."""
        return any(edge.on in (On.FAILED, On.ANY) for edge in self.outs)

    @property
    def is_plain_body(self) -> bool:
        """Whether starting it is a mere claim: a body without effect, loop or wait."""
        return self.type in ("tool", "agent") and self.for_each is None and self.effect_key is None

    @property
    def may_share(self) -> bool:
        """Whether a worker may claim it together with others: a tool's body, or an item's, without
        effect, rounds, or a service that can be shut off, and in no hurry."""
        return (
            self.type == "tool"
            and self.effect_key is None
            and self.repeat is None
            and self.undoes is None
            and not self.breaker
            and not self.gates
            and self.timeout_s >= SHARED_TIMEOUT_S
        )

    @property
    def tool(self) -> str:
        """The name of the tool that it calls; empty when it calls none."""
        return str(self.config.get("tool", ""))

    @property
    def is_decision(self) -> bool:
        """Whether a canvas must stop here: what follows depends on what this step answers."""
        return (
            self.type not in ("tool", "agent")
            or self.for_each is not None
            or self.repeat is not None
            or self.fallback is not None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledWorkflow:
    """A whole workflow, ready to run. ``timeout_s`` is wall time, or working time when none
    was given in the document (then one hour; FORMAT section 4, Defaults)."""

    name: str
    title: str
    steps: tuple[StepPlan, ...]
    edges: tuple[Edge, ...]
    by_key: Mapping[str, int]
    max_parallel: int
    timeout_s: float
    timeout_is_wall: bool
    output: Template | None
    signals: Mapping[str, Mapping[str, Any] | None]
    input_schema: Mapping[str, Any] | None
    pins: Mapping[str, str]

    def step(self, key: str) -> StepPlan:
        """The step named ``key``; KeyError when there is none."""
        return self.steps[self.by_key[key]]

    @property
    def forward(self) -> tuple[StepPlan, ...]:
        """The steps of the document; what follows them are their compensations."""
        return tuple(step for step in self.steps if step.undoes is None)

    @property
    def compensations(self) -> tuple[StepPlan, ...]:
        """The hidden steps that undo a finished one, in the document's order."""
        return tuple(step for step in self.steps if step.undoes is not None)

    @property
    def asks_people(self) -> bool:
        """Whether a person may be asked; then whoever keeps the questions hears of a run's end."""
        return any(step.type == "human_gate" for step in self.steps)

    @property
    def last_steps(self) -> tuple[StepPlan, ...]:
        """Steps without successor: the default output of a run (a fallback is its owner's)."""
        return tuple(s for s in self.forward if not s.outs and s.owner is None)
