"""What in a step's question may be a stranger's words: prompt injection has to come from there.

A person's approval at a gate vouches for the run's input and for all that led to the gate; what
came after it, or beside it, is a stranger's again. Pure: it looks at the document and at which
gates were approved.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from orchestrator.core.compiled import CompiledWorkflow, StepPlan
from orchestrator.core.expressions import compile_template

_OURS = (("run", "id"), ("run", "workflow"), ("index",))  # the caller may choose the rest
_HOUSE_TYPES = frozenset({"router"})  # what they say stands in the document


def strangers(
    workflow: CompiledWorkflow,
    step: StepPlan,
    templates: Sequence[Any],
    *,
    with_input: bool,
    approved: Collection[int],
) -> tuple[str, ...]:
    """The sources, by name, that nobody vouched for, sorted. ``approved``: the positions of the
    gates at which a person agreed."""
    found = set(_sources(workflow, step, templates, with_input=with_input))
    if not found:
        return ()
    vouched = _vouched(workflow, approved)
    return tuple(sorted(found - vouched))


def gates_before(workflow: CompiledWorkflow, position: int) -> list[int]:
    """The human gates among what leads to the step, by position."""
    return [place for place in _ancestors(workflow, position) if workflow.steps[place].type == GATE]


GATE = "human_gate"


def agreed(output: Any) -> bool:
    """Whether a gate's output says that a person agreed, and not the clock."""
    if not isinstance(output, Mapping) or output.get("decision") != "approved":
        return False
    return not str(output.get("by", "system:")).startswith("system:")


def _sources(
    workflow: CompiledWorkflow, step: StepPlan, templates: Sequence[Any], *, with_input: bool
) -> Iterator[str]:
    for template in templates:
        yield from _named(workflow, step, compile_template(template, names=None).paths)
    if not with_input:
        return
    if step.input is not None:
        yield from _named(workflow, step, step.input.paths)
        return
    yield from _merged(workflow, step)


def _merged(workflow: CompiledWorkflow, step: StepPlan) -> Iterator[str]:
    """Without an input of its own a step gets the outputs of what it needs."""
    if step.merge.expression is not None:
        yield from _named(workflow, step, step.merge.expression.paths)
    for edge in step.ins:
        yield from _step(workflow, workflow.steps[edge.source].key)


def _named(
    workflow: CompiledWorkflow, step: StepPlan, paths: Iterable[Sequence[Any]]
) -> Iterator[str]:
    loop = step.for_each
    for path in paths:
        if loop is not None and path[0] in ("item", loop.name):
            for each in loop.items.paths:
                yield from _source(workflow, each)
        else:
            yield from _source(workflow, path)


def _source(workflow: CompiledWorkflow, path: Sequence[Any]) -> Iterator[str]:
    if tuple(path[:2]) in _OURS or tuple(path[:1]) in _OURS:
        return
    if path[0] != "steps":
        yield str(path[0])
        return
    keys = [str(path[1])] if len(path) > 1 else [each.key for each in workflow.steps]
    for key in keys:
        yield from _step(workflow, key)


def _step(workflow: CompiledWorkflow, key: str) -> Iterator[str]:
    position = workflow.by_key.get(key)
    if position is not None and workflow.steps[position].type not in _HOUSE_TYPES:
        yield f"steps.{key}"


def _vouched(workflow: CompiledWorkflow, approved: Collection[int]) -> set[str]:
    if not approved:
        return set()
    seen = {"input", "trigger"}
    for gate in approved:
        places = {gate, *_ancestors(workflow, gate)}
        seen |= {f"steps.{workflow.steps[place].key}" for place in places}
    return seen


def _ancestors(workflow: CompiledWorkflow, position: int) -> set[int]:
    found: set[int] = set()
    open_ = [position]
    while open_:
        for edge in workflow.steps[open_.pop()].ins:
            if edge.source not in found:
                found.add(edge.source)
                open_.append(edge.source)
    return found
