"""Every place of a document where an expression may stand, and what it can see there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from orchestrator.core.document import Document
from orchestrator.core.step_kinds import AgentStep, AnyStep, HumanGateStep, RouterStep, WaitStep

Path = tuple[str | int, ...]

RUN_NAMES = frozenset({"input", "steps", "run", "trigger"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an expression stands. ``bare`` is CEL, else a template.

    ``step`` is the step that evaluates it, None for the run's output; ``sees_itself`` when the
    step has completed by then (its compensation).
    """

    path: Path
    value: Any
    names: frozenset[str]
    bare: bool = False
    step: str | None = None
    sees_itself: bool = False


def all_places(document: Document) -> Iterator[Place]:
    """All places of the document that are written."""
    for key, step in document.steps.items():
        for place in (*_conditions(key, step), *_values(key, step), *_own(key, step)):
            if place.value is not None:
                yield place
    if document.has_output:
        yield Place(path=("output",), value=document.output, names=RUN_NAMES)


def _loop_names(step: AnyStep) -> frozenset[str]:
    names = RUN_NAMES
    if step.for_each is not None:
        names |= {step.for_each.as_, "item", "index"}
    if step.repeat is not None:
        names |= {"previous"}
    return names


def _conditions(key: str, step: AnyStep) -> Iterator[Place]:
    base: Path = ("steps", key)
    yield Place(path=(*base, "when"), value=step.when, names=RUN_NAMES, bare=True, step=key)
    for index, need in enumerate(step.edges):
        yield Place(
            path=(*base, "needs", index, "when"),
            value=need.when,
            names=RUN_NAMES | {"output"},
            bare=True,
            step=key,
        )
    if step.repeat is not None:
        yield Place(
            path=(*base, "repeat", "until"),
            value=step.repeat.until,
            names=_loop_names(step) | {"output"},
            bare=True,
            step=key,
        )


def _values(key: str, step: AnyStep) -> Iterator[Place]:
    base: Path = ("steps", key)
    names = _loop_names(step)
    yield Place(path=(*base, "input"), value=step.input, names=names, step=key)
    if step.for_each is not None:
        items = step.for_each.items
        yield Place(path=(*base, "for_each", "items"), value=items, names=RUN_NAMES, step=key)
    yield Place(
        path=(*base, "merge", "expression"),
        value=step.merge.expression,
        names=names,
        bare=True,
        step=key,
    )
    if step.effect is not None:
        yield Place(path=(*base, "effect", "key"), value=step.effect.key, names=names, step=key)
    yield from _compensation(key, step, names)


def _compensation(key: str, step: AnyStep, names: frozenset[str]) -> Iterator[Place]:
    block = step.compensate
    if block is None:
        return
    path: Path = ("steps", key, "compensate")
    yield Place(path=(*path, "input"), value=block.input, names=names, step=key, sees_itself=True)
    if block.effect is not None:
        yield Place(
            path=(*path, "effect", "key"),
            value=block.effect.key,
            names=names,
            step=key,
            sees_itself=True,
        )


def _own(key: str, step: AnyStep) -> Iterator[Place]:
    names = _loop_names(step)
    for tail, value, bare in _own_texts(step):
        yield Place(path=("steps", key, *tail), value=value, names=names, bare=bare, step=key)


def _own_texts(step: AnyStep) -> Iterator[tuple[Path, Any, bool]]:
    match step:
        case AgentStep():
            yield ("system",), step.system, False
            yield ("prompt",), step.prompt, False
        case HumanGateStep():
            yield ("message",), step.message, False
            yield ("assignees",), list(step.assignees), False
            for index, escalation in enumerate(step.escalate):
                yield ("escalate", index, "to"), list(escalation.to), False
        case WaitStep():
            yield ("until",), step.until, False
        case RouterStep():
            yield ("value",), step.value, True
            yield ("question",), step.question, False
            for index, route in enumerate(step.routes):
                yield ("routes", index, "when"), route.when, True
        case _:
            return
