"""The values behind a run's expressions: found lazily, and only what is named.

Where they come from is left to a subclass: the engine reads stored rows, a simulation what was
given. What is made of them is the same for both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from orchestrator.core.compiled import CompiledWorkflow, Edge, StepPlan
from orchestrator.core.decision import Ref
from orchestrator.core.errors import ConditionError
from orchestrator.core.expressions import Template
from orchestrator.core.snapshot import Mark, Snapshot


class RunFacts(Protocol):
    """What expressions may see of a run."""

    @property
    def id(self) -> object:
        """Its id, seen as text."""
        ...

    @property
    def workflow(self) -> str:
        """The workflow's name."""
        ...

    @property
    def correlation_id(self) -> str:
        """The caller's id for the affair."""
        ...

    @property
    def input(self) -> Any:
        """The run's input."""
        ...

    @property
    def trigger(self) -> Any:
        """What started it."""
        ...


class RowFacts(Protocol):
    """What expressions may see of a step at work: its item, and its last round's output."""

    @property
    def index(self) -> int | None:
        """The item's place; None for a plain step."""
        ...

    @property
    def item(self) -> Any:
        """The item."""
        ...

    @property
    def previous(self) -> Any:
        """The output of the last round of a repeat."""
        ...


class Values:
    """What a run's expressions see. Outputs of completed steps never change, so they are kept
    for as long as the run is held; implements ``core.propagation.Conditions``."""

    def __init__(self, facts: RunFacts, workflow: CompiledWorkflow, snapshot: Snapshot) -> None:
        self.facts = facts
        self.workflow = workflow
        self.outputs: dict[int, Any] = {}
        self._item: dict[str, Any] = {}
        self.snapshot = snapshot

    # -- where they come from ------------------------------------------------------------------

    def find_outputs(self, positions: set[int]) -> Mapping[int, Any]:
        """The outputs of these steps, as far as they have any."""
        raise NotImplementedError

    def find_item_outputs(self, key: str) -> list[Any]:
        """The outputs of a for_each in item order; null where an item did not complete."""
        raise NotImplementedError

    def find_order(self, positions: Sequence[int]) -> Sequence[int]:
        """Those of the steps that completed, first to complete first."""
        raise NotImplementedError

    def find_completed_items(self, position: int) -> list[int]:
        """The items of a for_each that completed and have not been undone, in order."""
        raise NotImplementedError

    def see(self, snapshot: Snapshot) -> None:
        """Look at this state from now on: a decision in the making, or the one just written."""
        self.snapshot = snapshot

    # -- outputs -------------------------------------------------------------------------------

    def learn(self, position: int, output: Any) -> None:
        """This step has just completed with ``output`` (perhaps not yet written)."""
        self.outputs[position] = output

    def load(self, positions: Iterable[int]) -> None:
        """Read the outputs of these steps that are not known yet, in one query."""
        wanted = {p for p in positions if p not in self.outputs}
        if wanted:
            self.outputs.update(self.find_outputs(wanted))

    def output(self, position: int) -> Any:
        """The step's output; KeyError when it has none (yet)."""
        if position not in self.outputs:
            self.load([position])
        return self.outputs[position]

    def learn_items(self, position: int) -> None:
        """The for_each is being undone: what its items said, though it may not have completed."""
        if position not in self.outputs:
            key = self.workflow.steps[position].key
            self.learn(position, self.find_item_outputs(key))

    # -- scopes --------------------------------------------------------------------------------

    def scope(self, **names: Any) -> dict[str, Any]:
        """The visible names (FORMAT section 1): the run's, and those given."""
        run = self.facts
        return {
            "input": run.input,
            "steps": _Steps(self, self.snapshot),
            "run": {
                "id": str(run.id),
                "workflow": run.workflow,
                "correlation_id": run.correlation_id,
            },
            "trigger": run.trigger,
            **names,
        }

    def rendered(self, template: Template) -> Any:
        """A template over the run's own names. Raises ConditionError."""
        self._load_named(template.references)
        return template.render(self.scope())

    def step_scope(self, step: StepPlan, row: RowFacts | None) -> dict[str, Any]:
        """The names that a step's own templates see: loops add theirs."""
        names: dict[str, Any] = {}
        if row is not None and row.index is not None and step.for_each is not None:
            names = {step.for_each.name: row.item, "item": row.item, "index": row.index}
        if step.repeat is not None:
            names["previous"] = None if row is None else row.previous
        return self.scope(**names)

    # -- conditions ----------------------------------------------------------------------------

    def edge(self, edge: Edge) -> bool:
        """The edge's condition over its source's output."""
        if edge.when is None:
            return True
        self._load_named(edge.when.references)
        names: dict[str, Any] = {}
        if "output" in edge.when.names:
            self.load([edge.source])
            if edge.source in self.outputs:
                names["output"] = self.outputs[edge.source]
        return edge.when.evaluate_bool(self.scope(**names))

    def step(self, position: int) -> bool:
        """The step's own condition."""
        when = self.workflow.steps[position].when
        if when is None:
            return True
        self._load_named(when.references)
        return when.evaluate_bool(self.scope())

    def until(self, ref: Ref, output: Any) -> bool:
        """The end of a repeat, over this round's output."""
        step = self.workflow.steps[ref.position]
        if step.repeat is None:
            return True
        self._load_named(step.repeat.until.references)
        names = {"output": output, "previous": self._item.get("previous")}
        if step.for_each is not None and ref.item is not None:
            item = self._item.get("item")
            names |= {step.for_each.name: item, "item": item, "index": ref.item}
        return step.repeat.until.evaluate_bool(self.scope(**names))

    def cover(self, owner: int, fallback: int) -> None:
        """The fallback's output stands for the owner's."""
        if fallback in self.outputs:
            self.learn(owner, self.outputs[fallback])

    def focus(self, row: RowFacts) -> None:
        """The item and previous round that ``until`` is asked about."""
        self._item = {"item": row.item, "previous": row.previous}

    def _load_named(self, keys: Iterable[str]) -> None:
        by_key = self.workflow.by_key
        self.load(by_key[key] for key in keys if key in by_key)

    # -- inputs --------------------------------------------------------------------------------

    def step_input(self, step: StepPlan, row: RowFacts | None) -> Any:
        """The evaluated input of a step: its template, else the merged outputs of its needs.

        Raises ConditionError.
        """
        if step.input is not None:
            self._load_named(step.input.references)
            return step.input.render(self.step_scope(step, row))
        return self._merged(step, row)

    def _merged(self, step: StepPlan, row: RowFacts | None) -> Any:
        """FORMAT section 1, ``merge``; branches without output are absent."""
        kind = step.merge.kind
        if step.merge.expression is not None:
            self._load_named(step.merge.expression.references)
            return step.merge.expression.evaluate(self.step_scope(step, row))
        marks = self.snapshot.marks
        sources = [e.source for e in step.ins if marks[e.index] == Mark.TAKEN]
        self.load(sources)
        sources = [source for source in dict.fromkeys(sources) if source in self.outputs]
        if kind == "list":
            return [self.outputs[source] for source in sources]
        if kind == "first":
            return self._first(sources)
        named = {self.workflow.steps[s].key: self.outputs[s] for s in sources}
        return named if kind == "nested" else _overlay(named, deep=kind == "deep")

    def _first(self, sources: list[int]) -> Any:
        if len(sources) < 2:
            return self.outputs[sources[0]] if sources else None
        order = self.find_order(sources)
        return self.outputs[order[0]]


def _overlay(named: dict[str, Any], *, deep: bool) -> dict[str, Any]:
    """Objects laid over one another, later ones win; anything else cannot be merged."""
    merged: dict[str, Any] = {}
    for key, output in named.items():
        if not isinstance(output, dict):
            raise ConditionError(
                f"the output of {key} is no object, so it cannot be merged: use merge: nested"
            )
        merged = _deep(merged, output) if deep else {**merged, **output}
    return merged


def _deep(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        both = isinstance(old, dict) and isinstance(value, dict)
        merged[key] = _deep(old, value) if both else value  # type: ignore[arg-type]
    return merged


class _Steps(Mapping[str, Any]):
    """``steps``: each step's state, and its output where it has one, read when asked for."""

    def __init__(self, values: Values, snapshot: Snapshot) -> None:
        self._values = values
        self._snapshot = snapshot

    def __getitem__(self, key: str) -> Mapping[str, Any]:
        position = self._values.workflow.by_key[key]
        return _StepView(self._values, self._snapshot, position)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values.workflow.by_key)

    def __len__(self) -> int:
        return len(self._values.workflow.by_key)


class _StepView(Mapping[str, Any]):
    def __init__(self, values: Values, snapshot: Snapshot, position: int) -> None:
        self._values = values
        self._snapshot = snapshot
        self._position = position

    def __getitem__(self, name: str) -> Any:
        if name == "state":
            return str(self._snapshot.state(self._position))
        if name == "output":
            return self._values.output(self._position)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        yield "state"
        self._values.load([self._position])
        if self._position in self._values.outputs:
            yield "output"

    def __len__(self) -> int:
        return sum(1 for _ in self)
