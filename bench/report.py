"""A figure's table for people and its line of JSON for machines."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One side of a figure. ``value`` is what the ratio is made of; ``shown`` the rest."""

    side: str
    value: float
    shown: Mapping[str, float | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure: our row against the better of plain Celery's, or against a number.

    ``beside`` are rows that are shown and not compared. ``target`` bounds ``measure``: the ratio,
    or with ``as_difference`` ours less theirs, or with ``as_number`` our value itself.
    """

    name: str
    title: str
    unit: str
    ours: Row
    plain: Sequence[Row] = ()
    beside: Sequence[Row] = ()
    more_is_better: bool = False
    as_difference: bool = False
    as_number: bool = False
    target: float
    note: str = ""
    details: Sequence[str] = ()

    @property
    def reference(self) -> Row | None:
        """The better of plain Celery's layouts."""
        if not self.plain:
            return None
        best = max if self.more_is_better else min
        return best(self.plain, key=lambda row: row.value)

    @property
    def measure(self) -> float | None:
        """What the target bounds; None when the reference was left out."""
        if self.as_number:
            return self.ours.value
        if self.reference is None:
            return None
        if self.as_difference:
            return self.ours.value - self.reference.value
        return self.ours.value / self.reference.value

    @property
    def is_met(self) -> bool | None:
        """Whether the target holds; None when nobody can tell."""
        if self.measure is None:
            return None
        return self.measure >= self.target if self.more_is_better else self.measure <= self.target


def percentiles(values: Sequence[float]) -> tuple[float, float]:
    """Median and 95th percentile."""
    cuts = statistics.quantiles(values, n=20, method="inclusive")
    return statistics.median(values), cuts[18]


def percentile(values: Sequence[float], n: int) -> float:
    """The n-th percentile."""
    return statistics.quantiles(values, n=100, method="inclusive")[n - 1]


def table(figure: Figure) -> str:
    """The figure as lines of text."""
    rows = [figure.ours, *figure.beside, *figure.plain]
    names = list(dict.fromkeys(name for row in rows for name in row.shown))
    head = ["", figure.unit, *names]
    body = [
        [row.side, _text(row.value), *(_text(row.shown.get(name, "")) for name in names)]
        for row in rows
    ]
    widths = [max(len(line[n]) for line in (head, *body)) for n in range(len(head))]
    lines = [f"{figure.name}  {figure.title}"]
    lines += ["  " + _aligned(line, widths) for line in (head, *body)]
    lines.append(f"  {_verdict(figure)}")
    if figure.note:
        lines.append(f"  ({figure.note})")
    lines += [f"    {line}" for line in figure.details]
    return "\n".join(lines)


def as_json(figure: Figure) -> str:
    """The figure as one line."""
    reference = figure.reference
    line: dict[str, Any] = {
        "figure": figure.name,
        "unit": figure.unit,
        "ours": {"value": figure.ours.value, **figure.ours.shown},
        "plain": {row.side: {"value": row.value, **row.shown} for row in figure.plain},
        "beside": {row.side: {"value": row.value, **row.shown} for row in figure.beside},
        "reference": None if reference is None else reference.side,
        _kind(figure): figure.measure and round(figure.measure, 3),
        "target": figure.target,
        "met": figure.is_met,
        "note": figure.note,
    }
    return orjson.dumps(line).decode()


def _kind(figure: Figure) -> str:
    if figure.as_number:
        return "value"
    return "difference" if figure.as_difference else "ratio"


def _verdict(figure: Figure) -> str:
    if figure.measure is None:
        return "no reference was measured"
    sign = ">=" if figure.more_is_better else "<="
    against = "" if figure.reference is None else f" against {figure.reference.side}"
    word = "met" if figure.is_met else "MISSED"
    return f"{_kind(figure)} {figure.measure:.2f}{against}: target {sign} {figure.target:g}, {word}"


def _aligned(line: Sequence[str], widths: Sequence[int]) -> str:
    first = line[0].ljust(widths[0])
    rest = [text.rjust(width) for text, width in zip(line[1:], widths[1:], strict=True)]
    return "  ".join([first, *rest])


def _text(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.2f}"
