"""Reading paths in the names that an expression sees, and cutting out just those paths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.core.cel_text import Path, shown_path

_INT_MIN = -(2**63)
_UINT_MAX = 2**64 - 1


class Missing(LookupError):
    """A path leads nowhere; the text says from where on. ``key`` is the part not found."""

    def __init__(self, words: str, key: str | int) -> None:
        super().__init__(words)
        self.key = key


def reach(scope: Mapping[str, Any], path: Path) -> Any:
    """The value at the end of ``path``, itself and not a copy; ``Missing`` says where it ends."""
    value: Any = scope
    for depth, part in enumerate(path):
        if not isinstance(value, Mapping if isinstance(part, str) else list):
            where = shown_path(path[:depth])
            raise Missing(f"{where} is {kind_of(value)}, so it has no {_step(part)}", part)
        try:
            value = value[part]  # type: ignore[index]
        except (KeyError, IndexError):
            raise Missing(f"there is no {shown_path(path[: depth + 1])}", part) from None
    return _plain_mapping(value)


def pruned(scope: Mapping[str, Any], paths: tuple[Path, ...]) -> dict[str, Any]:
    """A context with only what ``paths`` lead to; what is missing stays out, for ``has()``.

    No path may begin with another one (``without_longer``).
    Raises ``Missing`` for a number that cannot be carried exactly (beyond 64 bits).
    """
    context: dict[str, Any] = {}
    for path in paths:
        _copy_path(scope, context, path)
    return context


def without_longer(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    """The paths without those that only go on where another one ends."""
    return tuple(
        path for path in paths if not any(path[:depth] in paths for depth in range(1, len(path)))
    )


def weight(value: Any) -> int:
    """How much there is: leaves, with text by its length."""
    match value:
        case str():
            return 1 + len(value)
        case list():
            return 1 + sum(map(weight, value))
        case Mapping():
            return 1 + sum(map(weight, value.values()))
        case _:
            return 1


def kind_of(value: Any) -> str:
    """The kind of a JSON value, in words for messages."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return "text"
        case int() | float():
            return "a number"
        case list():
            return "a list"
        case _:
            return "an object"


def _copy_path(scope: Mapping[str, Any], context: dict[str, Any], path: Path) -> None:
    source: Any = scope
    target: Any = context
    for depth, part in enumerate(path):
        if not isinstance(source, Mapping) or part not in source:
            return
        source = source[part]
        is_last = depth == len(path) - 1
        if is_last or not isinstance(source, Mapping):
            # A plain value in the middle is handed over as it is: the library's own error follows.
            target.setdefault(part, _exact(source, path))
            return
        target = target.setdefault(part, {})


def _exact(value: Any, path: Path) -> Any:
    """The value as plain JSON for the library, which would round integers beyond 64 bits."""
    match value:
        case str() | bool() | None | float():
            return value
        case int():
            if _INT_MIN <= value <= _UINT_MAX:
                return value
            raise Missing(f"{shown_path(path)} holds {value}, an integer beyond 64 bits", path[-1])
        case list() | tuple():
            return [_exact(item, path) for item in value]
        case Mapping():
            return {key: _exact(item, path) for key, item in value.items()}
        case _:
            raise Missing(f"{shown_path(path)} holds a {type(value).__name__}, not JSON", path[-1])


def _plain_mapping(value: Any) -> Any:
    """A lazy mapping as a plain object; plain values are returned as they are."""
    if isinstance(value, Mapping) and not isinstance(value, dict):
        return {key: _plain_mapping(item) for key, item in value.items()}
    return value


def _step(part: str | int) -> str:
    return f'key "{part}"' if isinstance(part, str) else f"position {part}"
