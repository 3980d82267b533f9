"""The one table that is left when all drills are over."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from tests.drill.line import Line

HEAD = ("promise", "drill", "tried", "held", "figures")


def table(lines: Sequence[Line], width: int | None = None) -> str:
    """All lines with their figures, then each broken promise in full."""
    width = width or max(100, min(160, shutil.get_terminal_size((120, 40)).columns))
    left = max(30, (width - 24) * 55 // 100)
    widths = (9, left, 9, 6, width - 24 - left)
    rows = [_row(HEAD, widths), "-" * width]
    for line in lines:
        held = "yes" if line.held else "NO"
        figures = ", ".join(f"{name} {shown(value)}" for name, value in line.figures.items())
        cells = (line.promise, line.drill, f"{line.tried:,}", held, figures)
        rows.append(_row(cells, widths))
    return "\n".join([*rows, *_broken(lines)])


def shown(value: float | str) -> str:
    """A figure as one reads it: 12,345 or 0.12."""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else value


def _row(cells: Iterable[str], widths: Sequence[int]) -> str:
    columns = [
        textwrap.wrap(cell, width - 2, break_on_hyphens=False) or [""]
        for cell, width in zip(cells, widths, strict=True)
    ]
    return "\n".join(
        "".join(
            f"{part:>{width - 2}}  " if number == 2 else f"{part:<{width}}"
            for number, (part, width) in enumerate(zip(parts, widths, strict=True))
        ).rstrip()
        for parts in zip_longest(*columns, fillvalue="")
    )


def _broken(lines: Iterable[Line]) -> list[str]:
    said: list[str] = []
    for line in lines:
        if line.held:
            continue
        said.append(f"\nNOT AS PROMISED: {line.promise}, {line.drill}")
        said += [textwrap.indent(text, "  ") for text in line.broken[:20]]
        if len(line.broken) > 20:
            said.append(f"  … and {len(line.broken) - 20} more")
        if not line.tried:
            said.append("  nothing was tried")
    return said
