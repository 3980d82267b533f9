"""The workflows that are measured, registered as blueprints like any other."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

from orchestrator import engine
from orchestrator.core.definition import canonical_json, parse_document
from orchestrator.models import Blueprint

TENANT = "bench"
CHAIN_STEPS = 10
WIDTH = 50
MAX_PARALLEL = 100
"""Items of a wide fan-out in flight at once."""
MIXED_STEPS = 50
HEAVY_EACH = 5
HEAVY_MS = 50
WIDTHS = {"branches": WIDTH, "items": WIDTH, "items200": 200, "items1000": 1000, "items5000": 5000}
"""How wide each fan-out is."""
BODIES = {
    "single": 1,
    "chain": CHAIN_STEPS,
    "three": 3,
    **{shape: width + 2 for shape, width in WIDTHS.items()},
    "alternating": CHAIN_STEPS,
    "mixed": MIXED_STEPS,
    "gate": 1,
    "timer": 1,
    "work": 2,
}
"""How many bodies a run of each shape executes."""
DECIDER = "user:decider"


def value_of(shape: str) -> dict[str, Any]:
    """The document of a shape; its name is a key of ``BODIES``."""
    return {"schema": "orchestrator/v1", "name": f"bench_{shape}", **_SHAPES[shape]()}


def register(shape: str) -> Blueprint:
    """The blueprint of a shape."""
    value = value_of(shape)
    document, problems = parse_document(value)
    if document is None:
        raise ValueError(f"the bench's own document {shape} is wrong: {problems}")
    return engine.register_blueprint(
        tenant=TENANT, document=document, value=value, canonical=canonical_json(value), pins={}
    )


def _noop(*needs: str) -> dict[str, Any]:
    step: dict[str, Any] = {"type": "tool", "tool": "bench.noop"}
    return {**step, "needs": list(needs)} if needs else step


def _single() -> dict[str, Any]:
    return {"steps": {"only": _noop()}}


def _chain(length: int) -> dict[str, Any]:
    keys = [f"s{n}" for n in range(length)]
    follow = {key: _noop(before) for before, key in itertools.pairwise(keys)}
    return {"steps": {keys[0]: _noop(), **follow}}


def is_other(shape: str, number: int) -> bool:
    """Whether the step of that number (from 0) of a shape is for the other queue."""
    if shape == "alternating":
        return number % 2 == 1
    return shape == "mixed" and number % HEAVY_EACH == HEAVY_EACH - 1


def _alternating() -> dict[str, Any]:
    return {"steps": _two_queues("alternating", CHAIN_STEPS, {"tool": "bench.other"})}


def _mixed() -> dict[str, Any]:
    heavy = {"tool": "bench.other_heavy", "input": {"milliseconds": HEAVY_MS}}
    return {"steps": _two_queues("mixed", MIXED_STEPS, heavy)}


def _two_queues(shape: str, count: int, other: dict[str, Any]) -> dict[str, Any]:
    steps: dict[str, Any] = {}
    for number in range(count):
        needs = [f"s{number - 1}"] if number else []
        steps[f"s{number}"] = _noop(*needs) | (other if is_other(shape, number) else {})
    return steps


def _gate() -> dict[str, Any]:
    gate = {"type": "human_gate", "assignees": [DECIDER], "timeout": "24h"}
    return {"steps": {"ask": gate, "after": _noop("ask")}}


def _timer() -> dict[str, Any]:
    return {"steps": {"nap": {"type": "wait", "for": "1d"}, "after": _noop("nap")}}


def _work() -> dict[str, Any]:
    """Two steps of random length, a pause until an instant of the input, two steps."""
    first = {"type": "tool", "tool": "bench.work", "input": {"half": 1}}
    second = {"type": "tool", "tool": "bench.work", "input": {"half": 2}}
    pause = {"type": "wait", "until": "${{ input.due }}", "needs": ["s1"]}
    return {
        "steps": {
            "s0": first,
            "s1": {**first, "needs": ["s0"]},
            "pause": pause,
            "s2": {**second, "needs": ["pause"]},
            "s3": {**second, "needs": ["s2"]},
        }
    }


def _branches() -> dict[str, Any]:
    keys = [f"b{n}" for n in range(WIDTH)]
    middle = {key: _noop("head") for key in keys}
    return {
        "max_parallel": WIDTH,
        "steps": {"head": _noop(), **middle, "join": _noop(*keys)},
    }


def _items(width: int) -> dict[str, Any]:
    head = {"type": "tool", "tool": "bench.numbers", "input": {"count": width}}
    parallel = min(width, MAX_PARALLEL)
    loop = {"items": "${{ steps.head.output }}", "max_parallel": parallel}
    each = {**_noop("head"), "for_each": loop, "input": {"number": "${{ item }}"}}
    return {
        "max_parallel": parallel,
        "steps": {"head": head, "each": each, "join": _noop("each")},
    }


_SHAPES = {
    "single": _single,
    "chain": partial(_chain, CHAIN_STEPS),
    "three": partial(_chain, 3),
    "branches": _branches,
    **{shape: partial(_items, width) for shape, width in WIDTHS.items() if shape != "branches"},
    "alternating": _alternating,
    "mixed": _mixed,
    "gate": _gate,
    "timer": _timer,
    "work": _work,
}
