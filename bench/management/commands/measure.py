"""``manage.py measure``: the measuring process of ``python -m bench``, which starts it."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand

from bench import machine
from bench.figures import (
    alternating,
    beside,
    commits,
    fanout,
    gap,
    history,
    mixed,
    parked,
    standing,
    start,
    submission,
    throughput,
    timers,
    working,
)
from bench.options import FIGURES, TWO_QUEUES, WEB, add_options
from bench.plain import EARLY, LATE
from bench.profiling import profile
from bench.report import as_json, table
from bench.stage import Stage, staged
from bench.statements import stop_counting

MEASURES = {
    "commits": commits.measure,
    "gap": gap.measure,
    "start": start.measure,
    "throughput": throughput.measure,
    "fanout": fanout.measure,
    "beside": beside.measure,
    "alternating": alternating.measure,
    "mixed": mixed.measure,
    "parked": parked.measure,
    "timers": timers.measure,
    "standing": standing.measure,
    "history": history.measure,
    "submission": submission.measure,
    "working": working.measure,
}


class Command(BaseCommand):
    """Measure the figures on the servers that the environment names."""

    help = "The measuring process of `python -m bench`."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The options of the bench."""
        add_options(parser)

    def handle(self, *_: Any, **options: Any) -> None:
        """One table and one line of JSON a figure."""
        self.stdout.write(f"{machine.describe()}\n\n")
        if options["profile"]:
            profile(options["runs"], options["shape"])
            return
        wanted = options["names"] or FIGURES
        folder = Path(os.environ["DATA_DIR"]) / "logs"
        layouts = () if options["ours"] else LATE
        if "throughput" in wanted and layouts:
            layouts += EARLY
        needs = {
            "two_queues": any(name in TWO_QUEUES for name in wanted),
            "web": any(name in WEB for name in wanted),
        }
        with staged(folder, layouts, quick=options["quick"], **needs) as stage:
            self._measure(stage, wanted)

    def _measure(self, stage: Stage, wanted: list[str] | tuple[str, ...]) -> None:
        stage.start_pulse()
        lines = []
        for name in wanted:
            stop_counting()
            for figure in MEASURES[name](stage):
                self.stdout.write(f"{table(figure)}\n\n")
                lines.append(as_json(figure))
        self.stdout.write("\n".join(lines))
        self.stdout.write(machine.describe())
