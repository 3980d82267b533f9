"""Tools whose bodies leave a line in a ledger that the engine knows nothing about.

The ledger stands for the outside world: what is written there has happened. Each line is committed
at once, by a connection of its own, and says which attempt (fence) began when, by the machine's
clock, which the database on the same machine shares.
"""

from __future__ import annotations

import os
import threading
import time
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import psycopg

from orchestrator.authoring import Permanent, ToolContext, Transient, tool
from tests.drill.app.tools import look_up_order, order, pay

LEDGER = """
CREATE TABLE IF NOT EXISTS chaos_ledger (
    call     uuid PRIMARY KEY,
    run      uuid NOT NULL,
    step     text NOT NULL,
    scope    text NOT NULL,
    attempt  int NOT NULL,
    fence    bigint NOT NULL,
    pid      int NOT NULL,
    began_at timestamptz NOT NULL
)
"""
_INSERT = "INSERT INTO chaos_ledger VALUES (%s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"
PATIENCE_S = 20.0
_local = threading.local()


@tool("chaos.work", idempotent=True)
def work(ctx: ToolContext, value: int, sleep_ms: int = 0, fail_first: int = 0) -> dict[str, Any]:
    """One more than ``value``; the first ``fail_first`` attempts fail."""
    write_line(ctx)
    time.sleep(sleep_ms / 1000)
    if ctx.attempt <= fail_first:
        raise Transient(f"attempt {ctx.attempt} of {fail_first} that fail")
    return {"value": value + 1}


@tool("chaos.total", idempotent=True)
def total(ctx: ToolContext, values: list[int]) -> dict[str, Any]:
    """The sum."""
    write_line(ctx)
    return {"value": sum(values)}


@tool("chaos.refuse", idempotent=True)
def refuse(ctx: ToolContext) -> dict[str, Any]:
    """Never works."""
    write_line(ctx)
    raise Permanent("this tool always refuses")


@tool("chaos.pay_slowly", idempotent=True, effect="required")
def pay_slowly(ctx: ToolContext, reference: str, hold_ms: int = 0) -> dict[str, Any]:
    """Take money from the provider that honours keys; the first answer takes long to come home."""
    return _held(ctx, hold_ms, pay, reference)


@tool("chaos.order_slowly", effect="required", reconcile=look_up_order)
def order_slowly(ctx: ToolContext, reference: str, hold_ms: int = 0) -> dict[str, Any]:
    """Order from one who can only be looked up; the first answer takes long to come home."""
    return _held(ctx, hold_ms, order, reference)


@tool("chaos.hang", idempotent=True)
def hang(ctx: ToolContext) -> dict[str, Any]:
    """Never comes back."""
    write_line(ctx)
    threading.Event().wait()
    return {}


def _held(ctx: ToolContext, hold_ms: int, act: Any, reference: str) -> dict[str, Any]:
    write_line(ctx)
    answer: dict[str, Any] = act(ctx, reference)
    if ctx.attempt == 1:
        time.sleep(hold_ms / 1000)
    return answer


def write_line(ctx: Any) -> None:
    """Say in the ledger that this body has begun; waits for a ledger that is away."""
    began_at = datetime.now(UTC)
    step = ctx.step
    line = (
        uuid4(),
        step.run_id,
        step.step_key,
        step.item_scope,
        step.attempt,
        step.fence,
        os.getpid(),
        began_at,
    )
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            _ledger().execute(_INSERT, line)
            return
        except psycopg.OperationalError:
            _local.connection = None
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def _ledger() -> psycopg.Connection[Any]:
    known: tuple[int, psycopg.Connection[Any]] | None = getattr(_local, "connection", None)
    if known is None or known[0] != os.getpid():
        opened = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)
        known = _local.connection = (os.getpid(), opened)
    return known[1]
