"""Which parts of a step's output the rest of the workflow asks for: for a stand-in of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.core.cel_text import Path
from orchestrator.core.compiled import CompiledWorkflow, StepPlan
from orchestrator.core.expressions import compile_expression, compile_template
from orchestrator.core.templates import template_texts

_OWN = ("input", "for_each", "effect", "compensate", "prompt", "system", "question", "message")
_MORE = ("until", "assignees", "escalate")


def output_paths(workflow: CompiledWorkflow, key: str) -> list[Path]:
    """The paths below ``steps.<key>.output`` that expressions of the workflow name."""
    found: dict[Path, None] = {}
    for path in _paths(workflow, workflow.step(key)):
        if path[:3] == ("steps", key, "output") and len(path) > 3:
            found[path[3:]] = None
        elif path[:1] == ("output",) and len(path) > 1:  # of an edge that leaves it
            found[path[1:]] = None
    return list(found)


def stand_in(value: Any, paths: list[Path]) -> Any:
    """``value`` with a blank text for each path that it lacks; as it is when it is no object."""
    if not isinstance(value, dict):
        return value
    for path in paths:
        _fill(value, path)
    return value


def _fill(value: dict[str, Any], path: Path) -> None:
    here: Any = value
    for part in path[:-1]:
        if not isinstance(here, dict) or not isinstance(part, str):
            return
        here = here.setdefault(part, {})
    if isinstance(here, dict) and isinstance(path[-1], str):
        here.setdefault(path[-1], "")


def _paths(workflow: CompiledWorkflow, step: StepPlan) -> Iterator[Path]:
    if workflow.output is not None:
        yield from workflow.output.paths
    for each in workflow.steps:
        yield from _paths_of(each.config)
        for program in (each.when, each.merge.expression):
            if program is not None:
                yield from program.paths
    for edge in workflow.edges:
        if edge.when is not None:
            named = edge.when.paths
            mine = edge.source == step.position
            yield from (path for path in named if mine or path[0] != "output")


def _paths_of(config: Mapping[str, Any]) -> Iterator[Path]:
    for name in (*_OWN, *_MORE):
        for _, text in template_texts(config.get(name)):
            yield from compile_template(text, names=None).paths
    bare = [config.get("value"), *(route.get("when") for route in config.get("routes", ()))]
    for text in bare:
        if isinstance(text, str):
            yield from compile_expression(text, names=None).paths
