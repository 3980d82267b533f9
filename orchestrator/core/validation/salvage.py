"""What can still be read of a document whose shape is wrong in places."""

from __future__ import annotations

import copy
from typing import Any

from orchestrator.core.definition import SCHEMA_NAME, Document, parse_document
from orchestrator.core.problems import Problem, pointer_parts, pointer_to

_ROUNDS = 4
_PLACEHOLDER: dict[str, Any] = {"type": "wait", "for": "1s"}


def readable_part(value: Any, problems: list[Problem]) -> tuple[Document | None, set[str]]:
    """The document without its wrong parts, and the pointers of what was left out.

    A step that cannot be read keeps its key and its needs (as a short wait), so that others may
    name it. None when not even that can be read.
    """
    if not isinstance(value, dict) or not isinstance(value.get("steps"), dict):
        return None, set()
    rest = copy.deepcopy(value)
    unsure: set[str] = set()
    document: Document | None = None
    for _ in range(_ROUNDS):
        for problem in reversed(problems):  # so that positions in lists still hold
            unsure.add(_leave_out(rest, problem))
        document, problems = parse_document(rest)
        if document is not None or not rest.get("steps"):
            break
    return document, unsure


def _leave_out(rest: dict[str, Any], problem: Problem) -> str:
    """Remove or replace the wrong part; returns the pointer of what was touched."""
    parts = pointer_parts(problem.pointer)
    if problem.code == "unknown_key":
        _delete(rest, parts)
        return problem.pointer
    match parts:
        case ["schema"]:
            rest["schema"] = SCHEMA_NAME
        case ["name"]:
            rest["name"] = "unnamed"
        case ["steps", key] if problem.code == "bad_key":
            rest["steps"].pop(key, None)
        case ["steps", key, *inner] if not inner or _is_missing(problem):
            _replace_step(rest["steps"], key)
            return pointer_to("steps", key)
        case [*way, last] if last.isdecimal():
            _delete(rest, parts)
            return pointer_to(*way)  # later positions of this list are no longer the author's
        case _:
            _delete(rest, parts)
    return problem.pointer


def _is_missing(problem: Problem) -> bool:
    return problem.code in ("missing_key", "loop_without_bound", "effect_without_key")


def _replace_step(steps: dict[str, Any], key: str) -> None:
    step = steps.get(key)
    needs = step.get("needs") if isinstance(step, dict) else None
    steps[key] = {**_PLACEHOLDER, **({"needs": needs} if isinstance(needs, list) else {})}


def _delete(rest: Any, parts: list[str]) -> None:
    *way, last = parts or [""]
    for part in way:
        if isinstance(rest, list):
            rest = rest[int(part)] if part.isdecimal() and int(part) < len(rest) else None
        else:
            rest = rest.get(part) if isinstance(rest, dict) else None
    if isinstance(rest, dict):
        rest.pop(last, None)
    elif isinstance(rest, list) and last.isdecimal() and int(last) < len(rest):
        del rest[int(last)]
