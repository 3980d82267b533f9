"""The no-op tool of the bench: it notes when it ran."""

from __future__ import annotations

import time
from typing import Any

from bench.marks import mark
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
