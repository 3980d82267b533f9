"""Workflows of every shape, each with what must come out for what goes in."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from workflows_app.models import Tenant
from workflows_app.publishing import JSON, publish

TENANT = "chaos"
QUEUES = ("tool", "tool", "agent", "engine", "tool", "compensation", "tool", "engine")

Input = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A workflow, and what a run of it must end as. ``signal``: what a caller sends it."""

    name: str
    steps: Mapping[str, Any]
    expected: Callable[[Input], Any] = lambda _: None
    state: str = "completed"
    signal: str | None = None
    children: int = 0
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def document(self) -> dict[str, Any]:
        """The document to publish."""
        retry = {"max_retries": 4, "base_delay": "200ms", "max_delay": "1s"}
        return {
            "schema": "orchestrator/v1",
            "name": self.name,
            "input": {
                "type": "object",
                "required": ["value", "sleep_ms", "items"],
                "properties": {
                    "value": {"type": "integer"},
                    "sleep_ms": {"type": "integer"},
                    "items": {"type": "array", "items": {"type": "integer"}},
                },
            },
            "timeout": "1h",
            "defaults": {"timeout": "60s", "retry": retry},
            "steps": dict(self.steps),
            **self.more,
        }


def some_input(rng: random.Random, pace_ms: int) -> Input:
    """An input that every shape takes; each body takes ``pace_ms`` on average."""
    return {
        "value": rng.randrange(1000),
        "sleep_ms": rng.randrange(pace_ms // 2, pace_ms * 3 // 2 + 1),
        "items": [rng.randrange(100) for _ in range(rng.randrange(3, 14))],
    }


def work(value: str, *needs: str, queue: str = "tool", **more: Any) -> dict[str, Any]:
    """A step that adds one to ``value`` (CEL) and leaves its line in the ledger."""
    data = {"value": f"${{{{ {value} }}}}", "sleep_ms": "${{ input.sleep_ms }}"}
    extra = more.pop("input", {})
    step = {"type": "tool", "tool": "chaos.work", "queue": queue, "input": data | extra}
    return step | ({"needs": list(needs)} if needs else {}) | more


def total(values: str | list[str], *needs: str) -> dict[str, Any]:
    """A step that adds up."""
    given = (
        f"${{{{ {values} }}}}" if isinstance(values, str) else [f"${{{{ {v} }}}}" for v in values]
    )
    return {"type": "tool", "tool": "chaos.total", "input": {"values": given}, "needs": list(needs)}


def value_of(key: str) -> str:
    """A step's value, in CEL."""
    return f"steps.{key}.output.value"


def chain(name: str, length: int, queues: tuple[str, ...]) -> Shape:
    """Step after step, each adding one, over these queues in turn."""
    steps: dict[str, Any] = {"s1": work("input.value", queue=queues[0])}
    for n in range(2, length + 1):
        steps[f"s{n}"] = work(
            value_of(f"s{n - 1}"), f"s{n - 1}", queue=queues[(n - 1) % len(queues)]
        )
    last = f"s{length}"
    return Shape(
        name=name, steps=steps, expected=lambda given: {last: {"value": given["value"] + length}}
    )


def fan(name: str, width: int, queues: tuple[str, ...], *, head: bool = True) -> Shape:
    """One step, ``width`` beside one another, one that adds up: a chord with a body."""
    steps: dict[str, Any] = {"begin": work("input.value")} if head else {}
    needs, value = (("begin",), value_of("begin")) if head else ((), "input.value")
    keys = [f"b{n}" for n in range(width)]
    for n, key in enumerate(keys):
        steps[key] = work(value, *needs, queue=queues[n % len(queues)])
    steps["join"] = total([value_of(key) for key in keys], *keys)
    added = 2 if head else 1
    return Shape(
        name=name,
        steps=steps,
        expected=lambda given: {"join": {"value": width * (given["value"] + added)}},
    )


CHAIN = chain("chain", 10, QUEUES)
ONE_QUEUE = chain("one_queue", 12, ("tool",))
FAN = fan("fan", 6, ("tool", "agent"))
LANES = Shape(
    name="lanes",
    steps={
        "each": work("item", for_each={"items": "${{ input.items }}", "max_parallel": 4}),
        "sum": total("steps.each.output.map(o, o.value)", "each"),
    },
    expected=lambda given: {"sum": {"value": sum(given["items"]) + len(given["items"])}},
)
ROUTED = Shape(
    name="routed",
    steps={
        "begin": work("input.value"),
        "choose": {
            "type": "router",
            "needs": ["begin"],
            "routes": [
                {"id": "small", "to": ["small"], "when": "input.value < 500"},
                {"id": "large", "to": ["large_a", "large_b"]},
            ],
            "default": "large",
        },
        "small": work("input.value"),
        "large_a": work("input.value", queue="agent"),
        "large_b": work("input.value"),
        "end": {
            "type": "tool",
            "tool": "chaos.total",
            "needs": ["small", "large_a", "large_b"],
            "merge": {"expression": "{'values': [size(steps.choose.output.routes)]}"},
        },
    },
    expected=lambda _: {"end": {"value": 1}},
)
FLAKY = Shape(
    name="flaky",
    steps={
        "shaky": work("input.value", input={"fail_first": 2}),
        "calm": work(value_of("shaky"), "shaky", queue="agent"),
    },
    expected=lambda given: {"calm": {"value": given["value"] + 2}},
)
CHILD = chain("child", 3, ("tool", "engine"))
PARENT = Shape(
    name="parent",
    steps={
        "begin": work("input.value"),
        "call": {
            "type": "sub_workflow",
            "workflow": "child",
            "needs": ["begin"],
            "input": {
                "value": f"${{{{ {value_of('begin')} }}}}",
                "sleep_ms": "${{ input.sleep_ms }}",
                "items": [],
            },
        },
        "end": work("steps.call.output.s3.value", "call"),
    },
    expected=lambda given: {"end": {"value": given["value"] + 5}},
    children=1,
)
PAUSE = Shape(
    name="pause",
    steps={
        "begin": work("input.value"),
        "rest": {"type": "wait", "for": "1s", "needs": ["begin"]},
        "end": work(value_of("begin"), "rest"),
    },
    expected=lambda given: {"end": {"value": given["value"] + 2}},
)
SIGNALLED = Shape(
    name="signalled",
    steps={
        "begin": work("input.value"),
        "hear": {"type": "wait", "signal": "go", "timeout": "10m", "needs": ["begin"]},
        "end": work("steps.hear.output.value", "hear"),
    },
    expected=lambda given: {"end": {"value": given["value"] * 2 + 1}},
    signal="go",
)
ROUNDS = Shape(
    name="rounds",
    steps={
        "turn": work(
            "previous == null ? 0 : previous.value",
            repeat={"until": "output.value >= 3", "max": 5, "delay": "200ms"},
        ),
        "end": work(value_of("turn"), "turn"),
    },
    expected=lambda _: {"end": {"value": 4}},
)
DOOMED = Shape(
    name="doomed",
    steps={
        "begin": work("input.value"),
        "bad": {"type": "tool", "tool": "chaos.refuse", "needs": ["begin"], "input": {}},
        "beside": work(value_of("begin"), "begin", queue="agent"),
        "never": work(value_of("begin"), "bad", "beside", join="strict"),
    },
    state="failed",
)
SPARED = Shape(
    name="spared",
    steps={
        "try": {"type": "tool", "tool": "chaos.refuse", "input": {}, "fallback": "spare"},
        "spare": work("input.value"),
        "end": work(value_of("try"), "try", queue="agent"),
    },
    expected=lambda given: {"end": {"value": given["value"] + 2}},
)

ALL = (
    CHAIN,
    ONE_QUEUE,
    FAN,
    LANES,
    ROUTED,
    FLAKY,
    PARENT,
    PAUSE,
    SIGNALLED,
    ROUNDS,
    DOOMED,
    SPARED,
)


def publish_shapes(*shapes: Shape) -> None:
    """Publish these workflows (and the child that one of them calls) for the tenant."""
    Tenant.ensure(TENANT)
    for shape in (CHILD, *shapes):
        publish(TENANT, orjson.dumps(shape.document), JSON, actor="user:chaos")
