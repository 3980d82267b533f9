"""Every history that a drill's database holds is decided anew, and comes out as recorded (P11)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from uuid import UUID

from orchestrator.engine.replaying import Replayed, replay_runs
from orchestrator.models import replay_rows
from tests.drill.line import Line

_PAGE = 1000
_NAMED = 20


def replay_all() -> list[str]:
    """One sentence for each run of the present database that is not identical; drills with a
    database of their own ask it at their end."""
    return [_words(one) for one in replay_runs(_every_run()) if not one.identical]


def replay_line() -> Line:
    """The same as a line of the table, with how fast it went."""
    began = time.monotonic()
    n_runs = n_lines = 0
    broken: list[str] = []
    for one in replay_runs(_every_run()):
        n_runs += 1
        n_lines += one.n_lines
        if not one.identical:
            broken.append(_words(one))
    pace = round(n_lines / max(time.monotonic() - began, 0.001))
    return Line(
        promise="P11",
        drill="every history is decided anew and comes to the same events and rows",
        tried=n_runs,
        figures={"events": n_lines, "events/s": pace},
        broken=broken[:_NAMED],
    )


def _words(one: Replayed) -> str:
    return f"run {one.run_id} ({one.workflow}): {one.unread or one.difference}"


def _every_run() -> Iterator[UUID]:
    last = UUID(int=0)
    while page := replay_rows.runs_after(last, _PAGE):
        yield from page
        last = page[-1]
