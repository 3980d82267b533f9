"""``transform``: the step's input is its output; the expressions in ``input`` do the work."""

from __future__ import annotations

from typing import Any

from orchestrator.authoring import tool


@tool("transform", idempotent=True, pure=True)
def transform(**values: Any) -> dict[str, Any]:
    """Answer the object given as input."""
    return values
