"""The tools of the bench: they note when they ran."""

from __future__ import annotations

import time
from typing import Any

from bench.marks import mark, random_length, second_half
from orchestrator.authoring import ToolContext, tool


@tool("bench.noop", idempotent=True)
def noop(ctx: ToolContext, **_given: Any) -> None:
    """Do nothing, and say when."""
    began = time.monotonic_ns()
    mark(ctx.run_id, began)


@tool("bench.numbers", idempotent=True)
def numbers(ctx: ToolContext, count: int) -> list[int]:
    """The list that a for_each runs over."""
    began = time.monotonic_ns()
    mark(ctx.run_id, began)
    return list(range(count))


@tool("bench.other", idempotent=True)
def other(ctx: ToolContext, **_given: Any) -> None:
    """Do nothing, on the other queue."""
    began = time.monotonic_ns()
    mark(ctx.run_id, began)


@tool("bench.other_heavy", idempotent=True)
def other_heavy(ctx: ToolContext, milliseconds: int) -> None:
    """Take a while, on the other queue, as a call to somebody else does."""
    began = time.monotonic_ns()
    time.sleep(milliseconds / 1000)
    mark(ctx.run_id, began)


@tool("bench.work", idempotent=True)
def work(ctx: ToolContext, half: int) -> None:
    """Take a random while, and say when. ``half`` 2: behind the run's pause."""
    began = time.monotonic_ns()
    time.sleep(random_length())
    mark(second_half(ctx.run_id) if half == 2 else ctx.run_id, began)
