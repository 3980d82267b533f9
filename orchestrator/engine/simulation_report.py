"""What a simulation tells: path, approvals, effects, time and cost, and what was assumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.core.decision import Ref
from orchestrator.core.effects import EffectPlan
from orchestrator.core.states import StepState
from orchestrator.engine.paper_bodies import is_called
from orchestrator.engine.paper_world import PaperRun, Seen

MICRO = 1_000_000
MAX_LINES = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """An expectation: what half of the runs stay below, and what 95 of 100 do, each step taken at
    that figure. ``unknown`` names what no earlier run tells of: then both are at least that."""

    p50: float
    p95: float
    unknown: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """``complete`` False: something is unknown."""
        return {
            "p50": self.p50,
            "p95": self.p95,
            "complete": not self.unknown,
            "unknown": list(self.unknown),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperStep:
    """A step, or an item, of the path. ``source`` says where its answer comes from; a step that was
    never reached has none. ``child`` is the simulation of its sub-workflow."""

    name: str
    type: str
    title: str
    state: str
    source: str
    attempts: int
    starts_s: float | None
    ends_s: float | None
    input: Any
    output: Any
    error: Mapping[str, Any] | None
    why: str
    child: Simulation | None

    def as_json(self) -> dict[str, Any]:
        """For the API."""
        shape = {name: getattr(self, name) for name in _PLAIN}
        return {**shape, "child": None if self.child is None else self.child.as_json()}


_PLAIN = (
    *("name", "type", "title", "state", "source", "attempts", "starts_s", "ends_s"),
    *("input", "output", "error", "why"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperApproval:
    """What people would be asked; ``decision`` is how it is taken to be decided, and ``source``
    says by whose word."""

    step: str
    asked: Mapping[str, Any]
    decision: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperEffect:
    """An effect that would be made. ``course``: ``call``, or what is found under the key already
    (``found``, ``clash``, ``undone``, ``busy``, ``doubt``)."""

    step: str
    key: str
    tool: str
    course: str
    held_by: str
    money: bool
    irreversible: bool
    undoes: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """What a run would come to. ``runs``: from how many earlier runs the figures come."""

    workflow: str
    version: int | None
    title: str
    state: str
    waiting_for: str
    outcome: str
    compensation: str
    output: Any
    error: Mapping[str, Any] | None
    warnings: list[dict[str, Any]]
    path: tuple[PaperStep, ...]
    approvals: tuple[PaperApproval, ...]
    effects: tuple[PaperEffect, ...]
    assumptions: tuple[tuple[str, str], ...]
    seconds: Range
    waiting_s: Range
    usd: Range
    runs: int
    history: tuple[dict[str, Any], ...]

    def as_json(self) -> dict[str, Any]:
        """For the API, and ``--json``."""
        return {
            "workflow": self.workflow,
            "version": self.version,
            "state": self.state,
            "waiting_for": self.waiting_for or None,
            "outcome": self.outcome or None,
            "compensation": self.compensation or None,
            "output": self.output,
            "error": self.error,
            "warnings": self.warnings,
            "path": [step.as_json() for step in self.path],
            "approvals": [asdict(each) for each in self.approvals],
            "effects": [asdict(each) for each in self.effects],
            "assumptions": [{"step": step, "words": words} for step, words in self.assumptions],
            "time_s": self.seconds.as_json(),
            "waiting_s": self.waiting_s.as_json(),
            "cost_usd": self.usd.as_json(),
            "runs": self.runs,
            "history": list(self.history),
        }


def report(middle: PaperRun, high: PaperRun) -> Simulation:
    """The simulation as played twice; all but the upper figures are those of ``middle``."""
    words, paper, seconds = middle.words, middle.paper, list(_unknown_times(middle))
    waits = [name for name, called in seconds if not called]
    return Simulation(
        workflow=middle.run.workflow,
        version=middle.run.workflow_version or None,
        title=middle.workflow.title,
        state=str(paper.state),
        waiting_for=paper.waiting_for,
        outcome="" if words is None else words.outcome,
        compensation="" if words is None else words.compensation,
        output=middle.output,
        error=None if words is None else words.error,
        warnings=paper.snapshot.warnings,
        path=tuple(_path(middle, high)),
        approvals=tuple(_approvals(middle)),
        effects=tuple(_effects(middle)),
        assumptions=tuple(_assumptions(middle)),
        seconds=_range(middle, high, lambda run: run.paper.now, [name for name, _ in seconds]),
        waiting_s=_range(middle, high, lambda run: run.paper.waited, waits),
        usd=_range(middle, high, _cost, list(_unknown_prices(middle))),
        runs=max((each.n_runs for each in middle.figures.values()), default=0),
        history=tuple(_history(middle)),
    )


def _range(
    middle: PaperRun, high: PaperRun, of: Callable[[PaperRun], float], unknown: list[str]
) -> Range:
    low, up = round(of(middle), 6), round(of(high), 6)
    return Range(p50=low, p95=max(low, up), unknown=tuple(dict.fromkeys(unknown)))


def _cost(run: PaperRun) -> float:
    own = sum(seen.microusd or 0.0 for seen in run.seen.values())
    return own / MICRO + sum(_cost(child) for _, child in _children(run))


def _children(run: PaperRun) -> Iterator[tuple[str, PaperRun]]:
    for seen in run.seen.values():
        if seen.child is not None:
            yield seen.name, seen.child


def _path(middle: PaperRun, high: PaperRun) -> Iterator[PaperStep]:
    """Every step in the document's order, its items behind it, then what was undone."""
    for step in middle.workflow.steps:
        refs = [Ref(step.position)]
        refs += [
            Ref(step.position, n) for n in sorted(middle.paper.rows.items.get(step.position, {}))
        ]
        for ref in refs:
            if step.undoes is None or middle.paper.rows.find(ref) is not None:
                yield _step(middle, high, ref)


def _step(middle: PaperRun, high: PaperRun, ref: Ref) -> PaperStep:
    step, row, seen = (
        middle.workflow.steps[ref.position],
        middle.paper.rows.find(ref),
        middle.seen.get(ref),
    )
    is_item = ref.item is not None
    state = middle.paper.snapshot.state(ref.position) if row is None or not is_item else row.state
    other = high.seen.get(ref)
    child = None
    if seen is not None and seen.child is not None:
        twin = seen.child if other is None or other.child is None else other.child
        child = report(seen.child, twin)
    name = step.key if not is_item else f"{step.key}[{ref.item}]"
    output = seen.output if seen is not None else None
    if not is_item and step.for_each is not None and state is StepState.COMPLETED:
        output = middle.values.outputs.get(ref.position)
    return PaperStep(
        name=name,
        type=step.type,
        title=str(step.config.get("title") or ""),
        state=str(state),
        source="" if seen is None else str(seen.source),
        attempts=0 if row is None else row.attempt,
        starts_s=None if seen is None else round(seen.began, 6),
        ends_s=None if seen is None else round(seen.ended, 6),
        input=None if seen is None else seen.input,
        output=output,
        error=_error_of(middle, name),
        why="" if seen is None else seen.why,
        child=child,
    )


_FAILURES = ("step.failed", "step.timed_out", "step.skipped")


def _error_of(run: PaperRun, name: str) -> Mapping[str, Any] | None:
    """The last failure that the history on paper has of it."""
    for line in reversed(run.paper.history):
        if line.step == name and line.type in _FAILURES:
            error: Mapping[str, Any] | None = line.payload.get("error")
            return error
    return None


def _approvals(run: PaperRun, prefix: str = "") -> Iterator[PaperApproval]:
    for seen in run.seen.values():
        if seen.shown:
            yield PaperApproval(
                step=prefix + seen.name,
                asked=seen.shown,
                decision=seen.decision,
                source=str(seen.source),
            )
        if seen.child is not None:
            yield from _approvals(seen.child, f"{prefix}{seen.name}/")


def _effects(run: PaperRun, prefix: str = "") -> Iterator[PaperEffect]:
    for seen in run.seen.values():
        for plan in seen.effects.values():
            yield _effect(run, seen, plan, prefix)
        if seen.child is not None:
            yield from _effects(seen.child, f"{prefix}{seen.name}/")


def _effect(run: PaperRun, seen: Seen, plan: EffectPlan, prefix: str) -> PaperEffect:
    step = seen.step
    return PaperEffect(
        step=prefix + seen.name,
        key=plan.key,
        tool=plan.tool,
        course=str(plan.course),
        held_by=plan.holder,
        money=bool((step.config.get("effect") or {}).get("money")),
        irreversible=step.irreversible,
        undoes=None if step.undoes is None else prefix + run.workflow.steps[step.undoes].key,
    )


def _assumptions(run: PaperRun, prefix: str = "") -> Iterator[tuple[str, str]]:
    for seen in run.seen.values():
        for words in dict.fromkeys(seen.assumed):
            yield prefix + seen.name, words
        if seen.child is not None:
            yield from _assumptions(seen.child, f"{prefix}{seen.name}/")


def _unknown_times(run: PaperRun, prefix: str = "") -> Iterator[tuple[str, bool]]:
    """Steps of whose time nothing is known, and whether that is the time of a body."""
    for seen in run.seen.values():
        if seen.seconds is None:
            yield prefix + seen.step.key, is_called(seen.step)
        if seen.child is not None:
            yield from _unknown_times(seen.child, f"{prefix}{seen.name}/")


def _unknown_prices(run: PaperRun, prefix: str = "") -> Iterator[str]:
    for seen in run.seen.values():
        if seen.microusd is None:
            yield prefix + seen.step.key
        if seen.child is not None:
            yield from _unknown_prices(seen.child, f"{prefix}{seen.name}/")


def _history(run: PaperRun) -> Iterator[dict[str, Any]]:
    for line in run.paper.history[:MAX_LINES]:
        yield {"at_s": round(line.at, 6), "type": line.type, "step": line.step or None}
