"""Documents by intent, without the gallery: everything in them is in the box."""

from __future__ import annotations

from typing import Any

import orjson


def document(name: str = "order_check", **changes: Any) -> dict[str, Any]:
    """A wait for a signal, then nothing: it starts, stands still, and can be steered."""
    return {
        "schema": "orchestrator/v1",
        "name": name,
        "title": "Order check",
        "input": {
            "type": "object",
            "required": ["order_id"],
            "properties": {
                "order_id": {"type": "string"},
                "amount_cents": {"type": "integer", "exclusiveMinimum": 0},
            },
        },
        "labels": {"waiting": "Waits for the shop"},
        "budget": {"cost_usd": "2.00", "duration": "10m"},
        "steps": {
            "hear": {
                "type": "wait",
                "title": "Hear from the shop",
                "signal": "go",
                "schema": {"type": "object", "required": ["ok"]},
                "timeout": "2h",
            },
        },
        **changes,
    }


def gated(name: str = "needs_approval") -> dict[str, Any]:
    """One gate for finance."""
    gate = {"type": "human_gate", "assignees": ["role:finance"], "timeout": "4h"}
    return document(name, steps={"approve": gate}, budget={"cost_usd": 1})


def parent_of(child: str, name: str = "parent") -> dict[str, Any]:
    """Starts ``child`` and waits for it."""
    call = {"type": "sub_workflow", "workflow": child, "input": {"order_id": "A-1"}}
    return document(name, steps={"call": call})


def as_json(value: Any) -> bytes:
    return orjson.dumps(value)
