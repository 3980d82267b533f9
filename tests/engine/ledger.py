"""A provider in this process, with the ledger that decides: what was sent, and what was done.

Four tools, as providers are: one honours keys, one does not, one does not but can be asked, one
can be asked and cannot tell. ``next_fault`` says what goes wrong in the next call, once.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from typing import Any

from orchestrator.authoring import ToolContext, Transient, tool
from tests.engine.probes import Killed

KEYED, KEYLESS, ASKABLE, UNSURE = (
    "ledger.keyed",
    "ledger.keyless",
    "ledger.askable",
    "ledger.unsure",
)
FAULTS = ("refused", "lost", "dies_before", "dies_after")

sent: Counter[str] = Counter()
done: Counter[str] = Counter()
faults: deque[str] = deque()
_lock = threading.Lock()


def forget() -> None:
    sent.clear()
    done.clear()
    faults.clear()


def next_fault(name: str) -> None:
    """``refused``: nothing is done, and said so. ``lost``: done, the answer is lost.
    ``dies_before`` and ``dies_after``: the worker dies on that side of the deed."""
    assert name in FAULTS
    faults.append(name)


def pay(kind: str, key: str, amount: Any = 1, **step: Any) -> dict[str, Any]:
    """A step with an effect at the provider of this kind."""
    return {
        "type": "tool",
        "tool": kind,
        "input": {"amount": amount},
        "effect": {"key": key},
        **step,
    }


def _act(ctx: ToolContext, *, honours_keys: bool) -> dict[str, Any]:
    key = ctx.idempotency_key
    assert key is not None, "an effect without a key"
    with _lock:
        fault = faults.popleft() if faults else ""
        sent[key] += 1
        if fault == "dies_before":
            raise Killed
        if fault == "refused":
            raise Transient("refused", not_applied=True)
        if not (honours_keys and done[key]):
            done[key] += 1
    if fault == "dies_after":
        raise Killed
    if fault == "lost":
        raise Transient("the answer is lost")
    return {"external_ref": f"R:{key}"}


def _ask(ctx: ToolContext, amount: Any = 1) -> dict[str, Any] | None:
    """What became of the key: the answer it had, or None."""
    return {"external_ref": f"R:{ctx.idempotency_key}"} if done[ctx.idempotency_key] else None


def _ask_in_vain(ctx: ToolContext, amount: Any = 1) -> None:
    raise Transient("the provider does not know")


@tool(KEYED, idempotent=True)
def keyed(ctx: ToolContext, amount: Any = 1) -> dict[str, Any]:
    return _act(ctx, honours_keys=True)


@tool(KEYLESS)
def keyless(ctx: ToolContext, amount: Any = 1) -> dict[str, Any]:
    return _act(ctx, honours_keys=False)


@tool(ASKABLE, reconcile=_ask)
def askable(ctx: ToolContext, amount: Any = 1) -> dict[str, Any]:
    return _act(ctx, honours_keys=False)


@tool(UNSURE, reconcile=_ask_in_vain)
def unsure(ctx: ToolContext, amount: Any = 1) -> dict[str, Any]:
    return _act(ctx, honours_keys=False)
