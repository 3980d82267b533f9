"""What a routing model is told about its run: compact, each part bounded in tokens (SPEC 5.4)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

GRAPH, STATE, OUTPUTS, PENDING = 500, 500, 1000, 500
"""Tokens for the routes, the states, the last three outputs, and what is pending."""
QUESTION = 6000
"""Tokens for what is to be routed: the table of SPEC 5.4 bounds what we add to it, and cutting it
short would let the end of a text pass unread."""
LAST_OUTPUTS = 3
CUT = " … (cut)"
_PIECE = re.compile(r"[A-Za-z]+|[0-9]+|\s+|[^\sA-Za-z0-9]")


def tokens(text: str) -> int:
    """About how many tokens a text is, rather too many than too few: tokenizers differ."""
    return sum(_weight(piece.group()) for piece in _PIECE.finditer(text))


def _weight(piece: str) -> int:
    if piece.isspace():
        return len(piece) // 8  # a single space belongs to its word
    if piece.isascii() and piece.isalnum():
        return -(-len(piece) // (4 if piece.isalpha() else 3))
    return len(piece.encode("utf-8", "replace"))


def bounded(text: str, limit: int) -> str:
    """The text, or as much of its beginning as fits into so many tokens."""
    left = limit
    for piece in _PIECE.finditer(text):
        left -= _weight(piece.group())
        if left < 0:
            break
    else:
        return text
    left = limit - tokens(CUT)
    for piece in _PIECE.finditer(text):
        weight = _weight(piece.group())
        if weight > left:
            return text[: piece.start()] + CUT
        left -= weight
    return text


def routes_told(routes: Iterable[tuple[str, str]]) -> str:
    """The ids and what each is for; when it is too much, the descriptions are cut, never an id."""
    known = list(routes)
    ids = sum(tokens(name) + 2 for name, _ in known)
    each = max((GRAPH - ids) // max(len(known), 1), 0)
    lines = []
    for name, description in known:
        words = " ".join(description.split())
        told = words if tokens(words) <= each else bounded(words, each) if each > 8 else ""
        lines.append(f"{name}: {told}" if told else name)
    return "\n".join(lines)


def brief(
    states: Sequence[tuple[str, str]], outputs: Sequence[tuple[str, Any]], pending: Sequence[str]
) -> str:
    """State of each step, the last outputs (newest first) and what is pending, each in its bound.

    ``outputs`` beyond the first three are left out.
    """
    state = "\n".join(f"{key} {word}" for key, word in states)
    shown = list(outputs)[:LAST_OUTPUTS]
    each = OUTPUTS // LAST_OUTPUTS - 8
    said = "\n".join(
        bounded(f"{key}: {json.dumps(value, ensure_ascii=False)}", each) for key, value in shown
    )
    parts = (
        ("Steps", state, STATE),
        ("Last outputs", said, OUTPUTS),
        ("Pending", "\n".join(pending), PENDING),
    )
    return "\n\n".join(f"{name}:\n{bounded(text, limit)}" for name, text, limit in parts if text)
