"""The terminal: colours where there is one, and a question that does not wait for ever."""

from __future__ import annotations

import os
import select
import sys
import textwrap
import time
from collections.abc import Callable

from config.demo.wording import Line

_COLOURS = {"green": "32", "red": "31", "yellow": "33", "cyan": "36", "dim": "2", "bold": "1"}
# Plain signs where the terminal cannot show others.
_SIGNS = {">": "▶", "+": "✔", "x": "✘", "~": "↻", "-": "-", "=": "⏸", "*": "◆"}
GLANCE_S = 0.25
WIDTH = 88


class Screen:
    """Writes to standard output, plainly when it is no terminal or NO_COLOR is set."""

    def __init__(self) -> None:
        self.someone_there = sys.stdin.isatty() and sys.stdout.isatty()
        self._colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        self._signs = (sys.stdout.encoding or "").lower().startswith("utf")

    def say(self, text: str = "", *, colour: str = "") -> None:
        """One line, at once."""
        sys.stdout.write(self.painted(text, colour) + "\n")
        sys.stdout.flush()

    def tell(self, line: Line, *, width: int) -> None:
        """One line of the story: when, how, who (in ``width`` columns), what."""
        sign = _SIGNS[line.sign] if self._signs else line.sign
        note = self.painted(f"  {line.note}", "dim") if line.note else ""
        state = self.painted(line.what.ljust(10 if line.note else 0), line.colour)
        mark = self.painted(sign, line.colour)
        when = f"{line.after.total_seconds():.2f} s"
        self.say(f"  {when:>9}  {mark} {line.who:<{width}}  {state}{note}")

    def ask(self, question: str, *, seconds: float, settled: Callable[[], bool]) -> str | None:
        """What the person types; None after so many seconds, once ``settled`` says so, or when
        the input has ended (then nobody is there any more).
        """
        sys.stdout.write(question)
        sys.stdout.flush()
        until = time.monotonic() + seconds
        while time.monotonic() < until and not settled():
            if select.select([sys.stdin], [], [], GLANCE_S)[0]:
                line = sys.stdin.readline()
                self.someone_there = bool(line)
                return line.strip().lower() if line else None
        self.say()
        return None

    def painted(self, text: str, colour: str) -> str:
        """The text in a colour, if this terminal has any."""
        if not colour or not self._colour:
            return text
        return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


def wrapped(text: str, width: int) -> list[str]:
    """The text in lines of at most ``width``, its own line ends kept; at least one line."""
    lines = [part for line in text.splitlines() for part in textwrap.wrap(line, width) or [""]]
    return lines or [""]
