"""Runs of every kind of step, with the acts of their callers and what must be true at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from orchestrator import engine
from tests.drill import life
from tests.drill.arena import turn
from tests.drill.life import TENANT, Act, Story
from workflows_app.models import Tenant
from workflows_app.publishing import JSON, publish

RETRY = {"max_retries": 3, "base_delay": "1s", "max_delay": "2s"}
REFERENCE = "${{ input.reference }}"
Steps = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """``books``: what the providers must have of its affair at the end, by operation.

    ``open_window``: its provider honours no keys. Between a tool's last look at its lease and the
    first byte that it sends there is a moment in which no fence of ours protects such a provider.
    """

    name: str
    steps: Steps
    acts: tuple[Act, ...] = (life.begin,)
    state: str = "completed"
    books: Mapping[str, int] = field(default_factory=dict)
    compensation: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)
    output: Callable[[Any], bool] = lambda _: True
    essential: bool = False
    open_window: bool = False

    @property
    def document(self) -> dict[str, Any]:
        """What is published."""
        return {
            "schema": "orchestrator/v1",
            "name": self.name,
            "input": {
                "type": "object",
                "required": ["reference"],
                "properties": {"reference": {"type": "string"}},
            },
            "timeout": "2h",
            "defaults": {"timeout": "60s", "retry": RETRY},
            "steps": dict(self.steps),
            **self.more,
        }

    def live(self, story: Story) -> None:
        """All its acts, in order; this process's wake-ups go to nobody else."""
        engine.set_dispatcher(story.carrier)
        for act in self.acts:
            act(story)

    def broken(self, story: Story) -> list[str]:
        """What is not as it must be, once it is over."""
        run = story.run
        found = story.broken_rules() + story.other_histories()
        if run.state != self.state:
            found.append(f"it is {run.state}, not {self.state}: {run.error}")
        if run.compensation != self.compensation:
            found.append(f"compensation is {run.compensation!r}, not {self.compensation!r}")
        if run.state == "completed" and not self.output(run.output):
            found.append(f"its output is {run.output}")
        for operation, wanted in self.books.items():
            applied = story.applied(operation)
            if applied != wanted:
                found.append(f"{operation} was applied {applied} times, not {wanted}")
        return found + _resent(self, story)


def _resent(scenario: Scenario, story: Story) -> list[str]:
    """A provider that can be asked nothing is called once, and again only when a person said so."""
    if scenario.books.get("send") is None:
        return []
    calls = story.keyless.calls("send").get(story.reference, 0)
    allowed = 1 + story.settled_by_hand
    return [f"it was sent {calls} times, a person allowed {allowed}"] if calls > allowed else []


def say(value: Any = 1, **more: Any) -> dict[str, Any]:
    return {"type": "tool", "tool": "probe.say", "input": {"value": value}, **more}


def call(tool: str, *, key: str = "", undo: str = "", **more: Any) -> dict[str, Any]:
    """A step with an effect; ``undo`` names the tool that takes it back."""
    step = {
        "type": "tool",
        "tool": f"drill.{tool}",
        "input": {"reference": REFERENCE},
        "effect": {"key": f"{key or tool}:{REFERENCE}"},
        **more,
    }
    if undo:
        step["compensate"] = {
            "tool": f"drill.{undo}",
            "input": {"reference": REFERENCE},
            "effect": {"key": f"{undo}:{REFERENCE}"},
        }
    return step


def fails(kind: str = "permanent", times: int = 10_000, **more: Any) -> dict[str, Any]:
    return {"type": "tool", "tool": "probe.fail", "input": {"kind": kind, "times": times}, **more}


def later(seconds: float) -> Act:
    """Time passes, beyond somebody's patience."""

    def act(story: Story) -> None:
        story.do(lambda: turn(seconds))
        story.go_on()

    return act


def go_on(story: Story) -> None:
    story.go_on()


CHILD = Scenario(
    name="child",
    steps={"inner": call("pay", key="child"), "last": say("done", needs=["inner"])},
    books={"charge": 1},
)
WAITING_CHILD = Scenario(
    name="waiting_child",
    steps={"wait": {"type": "wait", "signal": "never"}, "after": say(needs=["wait"])},
)
SAGA: Steps = {
    "charge": call("pay", undo="repay"),
    "order": call("order", undo="unorder", needs=["charge"]),
    "refused": fails(needs=["order"]),
}
GATE = {"type": "human_gate", "assignees": ["role:finance"], "timeout": "1h"}

ALL: tuple[Scenario, ...] = (
    Scenario(
        name="plain",
        steps={"a": say(1), "b": say("${{ steps.a.output + 1 }}", needs=["a"], queue="engine")},
        output=lambda output: output == {"b": 2},
    ),
    Scenario(
        name="keyed",
        steps={"pay": call("pay"), "last": say(needs=["pay"])},
        books={"charge": 1},
        essential=True,
    ),
    Scenario(
        name="keyless_looked_up",
        steps={"order": call("order"), "last": say(needs=["order"])},
        books={"order": 1},
        essential=True,
        open_window=True,
    ),
    Scenario(
        name="keyless_blind",
        steps={"send": call("send"), "last": say(needs=["send"])},
        acts=(life.begin, life.settle_doubts),
        books={"send": 1},
        essential=True,
        open_window=True,
    ),
    Scenario(
        name="keyless_skipped",
        steps={
            "send": call("send", effect={"key": f"send:{REFERENCE}", "on_doubt": "skip"}),
            "last": say(needs=["send"]),
        },
        # a mail that may be lost: never twice; whether once, nobody can tell
    ),
    Scenario(
        name="agent",
        steps={
            "write": {"type": "agent", "model": "offline:echo", "prompt": f"{REFERENCE}"},
            "last": say("${{ steps.write.output.text }}", needs=["write"]),
        },
        output=lambda output: bool(output["last"]),
    ),
    Scenario(
        name="router",
        steps={
            "a": say(7),
            "choose": {
                "type": "router",
                "needs": ["a"],
                "strategy": "rules",
                "routes": [
                    {"id": "big", "to": ["big"], "when": "steps.a.output > 5"},
                    {"id": "small", "to": ["small"], "when": "steps.a.output <= 5"},
                ],
                "default": "small",
            },
            "big": call("pay"),
            "small": call("send"),
            "join": say("${{ steps.choose.output.routes }}", needs=["big", "small"]),
        },
        books={"charge": 1, "send": 0},
        output=lambda output: output == {"join": ["big"]},
    ),
    Scenario(
        name="wait_timer",
        steps={"wait": {"type": "wait", "for": "30s"}, "pay": call("pay", needs=["wait"])},
        books={"charge": 1},
    ),
    Scenario(
        name="wait_signal",
        steps={
            "wait": {"type": "wait", "signal": "go"},
            "pay": call("pay", needs=["wait"]),
        },
        acts=(life.begin, life.signal("go", {"n": 1})),
        books={"charge": 1},
        essential=True,
    ),
    Scenario(
        name="early_signal",
        steps={"wait": {"type": "wait", "signal": "go"}, "pay": call("pay", needs=["wait"])},
        acts=(life.begin_only, life.signal("go", {"n": 1})),
        books={"charge": 1},
    ),
    Scenario(
        name="gate",
        steps={"gate": GATE, "pay": call("pay", needs=["gate"])},
        acts=(life.begin, life.decide("approve")),
        books={"charge": 1},
        essential=True,
    ),
    Scenario(
        name="gate_rejected",
        steps={
            "pay": call("pay", undo="repay"),
            "gate": {**GATE, "needs": ["pay"]},
            "order": call("order", needs=["gate"]),
        },
        acts=(life.begin, life.decide("reject")),
        state="failed",
        compensation="full",
        books={"charge": 1, "refund": 1, "order": 0},
    ),
    Scenario(
        name="gate_expired",
        steps={"gate": {**GATE, "on_reject": "end"}, "pay": call("pay", needs=["gate"])},
        acts=(life.begin, later(3700)),
        books={"charge": 0},
    ),
    Scenario(
        name="sub_workflow",
        steps={
            "sub": {
                "type": "sub_workflow",
                "workflow": "child",
                "input": {"reference": REFERENCE},
            },
            "order": call("order", needs=["sub"]),
        },
        books={"charge": 1, "order": 1},
        essential=True,
    ),
    Scenario(
        name="child_cancelled",
        steps={
            "sub": {
                "type": "sub_workflow",
                "workflow": "waiting_child",
                "input": {"reference": REFERENCE},
            },
        },
        acts=(life.begin, life.cancel),
        state="cancelled",
        compensation="none",
    ),
    Scenario(
        name="for_each",
        steps={
            "each": {
                **say("${{ item }}"),
                "for_each": {"items": [1, 2, 3], "max_parallel": 2},
            },
            "pay": call("pay", needs=["each"]),
            "sum": say("${{ steps.each.output }}", needs=["pay", "each"]),
        },
        books={"charge": 1},
        output=lambda output: output == {"sum": [1, 2, 3]},
    ),
    Scenario(
        name="repeat",
        steps={
            "again": {
                **say("${{ previous == null ? 1 : previous + 1 }}"),
                "repeat": {"until": "output >= 3", "max": 5, "delay": "5s"},
            },
            "pay": call("pay", needs=["again"]),
        },
        books={"charge": 1},
    ),
    Scenario(
        name="fallback",
        steps={
            "main": fails(fallback="other"),
            "other": call("pay"),
            "last": say("${{ steps.main.output.status }}", needs=["main"]),
        },
        books={"charge": 1},
        output=lambda output: output == {"last": "applied"},
    ),
    Scenario(
        name="retry",
        steps={"flaky": fails("other", times=1), "pay": call("pay", needs=["flaky"])},
        books={"charge": 1},
    ),
    Scenario(
        name="fork_and_join",
        steps={
            "a": say(1),
            "left": call("pay", needs=["a"]),
            "right": call("order", needs=["a"]),
            "join": say(needs=["left", "right"], join="strict"),
        },
        books={"charge": 1, "order": 1},
        essential=True,
        open_window=True,
    ),
    Scenario(
        name="saga",
        steps=SAGA,
        state="failed",
        compensation="full",
        books={"charge": 1, "refund": 1, "order": 1, "unorder": 1},
        essential=True,
        open_window=True,
    ),
    Scenario(
        name="parallel_saga",
        steps={
            "charge": call("pay", undo="repay"),
            "order": call("order", undo="unorder"),
            "refused": fails(needs=["charge", "order"]),
        },
        state="failed",
        compensation="full",
        books={"charge": 1, "refund": 1, "order": 1, "unorder": 1},
    ),
    Scenario(
        name="saga_that_cannot",
        steps={
            "charge": {
                **call("pay"),
                "compensate": {"tool": "probe.fail", "input": {"kind": "permanent"}},
            },
            "refused": fails(needs=["charge"]),
        },
        state="failed",
        compensation="partial",
        books={"charge": 1, "refund": 0},
    ),
    Scenario(
        name="cancelled",
        steps={
            "charge": call("pay", undo="repay"),
            "wait": {"type": "wait", "signal": "never", "needs": ["charge"]},
        },
        acts=(life.begin, life.cancel),
        state="cancelled",
        compensation="full",
        books={"charge": 1, "refund": 1},
        essential=True,
    ),
    Scenario(
        name="paused",
        steps={"charge": call("pay"), "order": call("order", needs=["charge"])},
        acts=(life.begin_only, life.pause, life.resume),
        books={"charge": 1, "order": 1},
    ),
    Scenario(
        name="retried_by_hand",
        steps={
            "charge": call("pay"),
            "odd": {
                "type": "tool",
                "tool": "drill.mended",
                "input": {"reference": REFERENCE},
                "needs": ["charge"],
            },
            "order": call("order", needs=["odd"]),
        },
        acts=(life.begin, life.mend, life.repair("retry_step", step="odd")),
        books={"charge": 1, "order": 1},
        essential=True,
        open_window=True,
    ),
    Scenario(
        name="skipped_by_hand",
        steps={
            "wait": {"type": "wait", "signal": "never", "optional": True},
            "pay": call("pay", needs=["wait"], join="all", when="true"),
        },
        acts=(life.begin, life.repair("skip_step", step="wait")),
        books={},
    ),
    Scenario(
        name="timed_out",
        steps={
            "charge": call("pay", undo="repay"),
            "wait": {"type": "wait", "signal": "never", "needs": ["charge"]},
        },
        more={"timeout": "PT2H"},
        acts=(life.begin, later(7300)),
        state="timed_out",
        compensation="full",
        books={"charge": 1, "refund": 1},
    ),
)


def publish_all() -> None:
    """All of them, and the children that they call."""
    Tenant.ensure(TENANT)
    for scenario in (CHILD, WAITING_CHILD, *ALL):
        publish(TENANT, orjson.dumps(scenario.document), JSON, actor="user:drill")
