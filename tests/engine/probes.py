"""Tools that tests tell what to do; registered as any author's tools are."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from orchestrator.authoring import Permanent, RateLimited, ToolContext, Transient, tool
from orchestrator.core.outcomes import Answer, Outcome
from orchestrator.executors.base import StepContext
from orchestrator.executors.sub_workflow import SubWorkflowExecutor
from orchestrator.executors.wait import WaitExecutor
from orchestrator.models import outbox_rows


class Killed(BaseException):
    """Ends a worker in the middle of a body, as SIGKILL does: nothing of the engine catches it."""


calls: Counter[str] = Counter()
hooks: dict[str, Callable[[ToolContext], Any]] = {}
wild: dict[str, Outcome] = {}
_lock = threading.Lock()


def forget() -> None:
    calls.clear()
    hooks.clear()
    wild.clear()


def die(ctx: ToolContext) -> None:
    raise Killed


class NosyWait(WaitExecutor):
    """A wait in whose body the test may do something."""

    def execute(self, context: StepContext) -> Outcome:
        if "wait" in hooks:
            hooks.pop("wait")(None)  # type: ignore[arg-type]
        return super().execute(context)


@tool("probe.say")
def say(value: Any = None) -> Any:
    return value


@tool("probe.count")
def count(ctx: ToolContext, name: str, value: Any = None) -> Any:
    """Counts how often a body really ran."""
    with _lock:
        calls[name] += 1
    return value


@tool("probe.only")
def only(rows: list[Any]) -> Any:
    """Has one parameter, whatever its name."""
    return rows


@tool("probe.fail")
def fail(ctx: ToolContext, times: int = 10_000, kind: str = "transient", value: Any = None) -> Any:
    """Fails in its first attempts."""
    if ctx.attempt > times:
        return value
    match kind:
        case "permanent":
            raise Permanent("never")
        case "limited":
            raise RateLimited("later", retry_after=100)
        case "other":
            raise LookupError("boom")
        case _:
            raise Transient("not now")


@tool("probe.odd")
def odd(kind: str) -> Any:
    """Outputs that are no JSON, or hardly."""
    values = {
        "nul": "a\x00b",
        "key": {"a\x00": 1},
        "surrogate": "\ud800",
        "nan": float("nan"),
        "set": {1, 2},
        "huge": 2**80,
        "exact": 2**63 - 1,
        "past_double": 2**53 + 1,
    }
    return values[kind]


@tool("probe.hook")
def hook(ctx: ToolContext, name: str, value: Any = None) -> Any:
    """Runs what the test put there, in the middle of the body."""
    result = hooks[name](ctx)
    return value if result is None else result


class Wild(WaitExecutor):
    """An executor that answers what the test says: as a body, and when its wait is over."""

    def execute(self, context: StepContext) -> Outcome:
        return wild["execute"]

    def resume(self, config: Any, answer: Answer, *, upstream: Any) -> Outcome:
        return wild["resume"]


class WildChild(SubWorkflowExecutor):
    """A child's end becomes what the test says."""

    def resume(self, config: Any, answer: Answer, *, upstream: Any) -> Outcome:
        return wild["resume"]


def spill(run_id: Any, payload: Any) -> None:
    """A subscriber that stores what cannot be stored."""
    outbox_rows.post("spilt", run_id, {"n": "a\x00b"})


class Rude(WaitExecutor):
    """Raises what PostgreSQL cannot store."""

    def execute(self, context: StepContext) -> Outcome:
        raise LookupError("nul \x00 and half a pair \ud800")


@tool("probe.call", service="outside")
def call(ctx: ToolContext, value: Any = None) -> Any:
    """Calls an outside service, which answers as the test says."""
    with _lock:
        calls["outside"] += 1
    answer = hooks.get("outside")
    result = answer(ctx) if answer is not None else None
    return value if result is None else result


@tool("probe.undo", service="outside")
def undo(ctx: ToolContext, value: Any = None) -> Any:
    """Undoes what was done, at the same service."""
    return call(ctx, value)


@tool("probe.again", idempotent=True)
def again(ctx: ToolContext, name: str) -> Any:
    """A hook that may be called again with the same key."""
    return hooks[name](ctx)


def found(ctx: ToolContext, name: str) -> Any:
    return hooks[f"find {name}"](ctx)


@tool("probe.known", idempotent=True, reconcile=found)
def known(ctx: ToolContext, name: str) -> Any:
    """A hook that another one can look up."""
    return hooks[name](ctx)
