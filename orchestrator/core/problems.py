"""What is wrong with a document: one shape for every check, and the words that go with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

Severity = Literal["error", "warning"]
LineOf = Callable[[str], int | None]
"""From a JSON pointer to the line (from 1) where its value begins."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding. ``message`` ends with how to mend it.

    ``pointer`` is a JSON pointer (RFC 6901) into the document, ``""`` for the whole of it;
    ``line`` counts from 1 and is None where no text was read (a document built in Python).
    """

    severity: Severity
    code: str
    pointer: str
    line: int | None
    message: str

    def as_json(self) -> dict[str, Any]:
        """The shape of FORMAT section 2: ``{severity, code, pointer, line, message}``."""
        return {
            "severity": self.severity,
            "code": self.code,
            "pointer": self.pointer,
            "line": self.line,
            "message": self.message,
        }


def no_line(_pointer: str) -> None:
    """The ``line_of`` of a document that was never text."""
    return


def pointer_to(*parts: str | int) -> str:
    """JSON pointer of a path, escaped: ``("steps", "a/b", 0)`` is ``/steps/a~1b/0``."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def pointer_parts(pointer: str) -> list[str]:
    """The path of a JSON pointer; array positions stay text."""
    if not pointer:
        return []
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/")]


def suggestion(word: str, known: Iterable[str], *, limit: int = 12) -> str:
    """``did you mean "needs"?``, or the known words, or ``""`` when none is known."""
    choices = sorted(known)
    close = get_close_matches(word, choices, n=1, cutoff=0.6)
    if close:
        return f'did you mean "{close[0]}"?'
    if not choices:
        return ""
    listed = ", ".join(choices[:limit])
    return f"known: {listed}{' …' if len(choices) > limit else ''}."
