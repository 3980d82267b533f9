"""The bounds of a document that was never text (builder, API objects)."""

from __future__ import annotations

from typing import Any

import orjson

from orchestrator.core.json_text import MAX_DEPTH
from orchestrator.core.problems import Problem
from orchestrator.core.source import MAX_BYTES


def size_problems(value: Any) -> list[Problem]:
    """What keeps a value from being a document at all: too deep, too large, not JSON."""
    if _depth_above(value, MAX_DEPTH):
        return [_refused("too_deep", f"deeper than {MAX_DEPTH} levels: make it flatter.")]
    try:
        size = len(orjson.dumps(value))
    except (TypeError, ValueError) as error:  # orjson's own error is a TypeError
        return [_refused("not_json", f"not JSON ({error}): use text, numbers, lists, objects.")]
    if size > MAX_BYTES:
        return [_refused("too_large", f"{size} bytes: at most {MAX_BYTES} (1 MiB); shorten it.")]
    return []


def _refused(code: str, message: str) -> Problem:
    return Problem("error", code, "", None, message)


def _depth_above(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit + 1):
        level = [item for item in level if isinstance(item, dict | list)]
        if not level:
            return False
        level = [
            child for item in level for child in (item.values() if isinstance(item, dict) else item)
        ]
    return True
