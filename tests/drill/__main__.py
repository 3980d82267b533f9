"""``python -m tests.drill``: hurt the product in every way we know; one table says what held.

    python -m tests.drill                        everything, small enough for ten minutes
    python -m tests.drill --size quick           what ``make test`` runs, too
    python -m tests.drill --size long --minutes 60
    python -m tests.drill --only storm,flush --seed 7

Ends 0 when every promise held, 1 when one did not. Each drill runs in a process of its own, with
its own servers in a temporary folder (kept with its logs when a promise was broken). What runs
elsewhere on the machine is left alone.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import orjson

from tests.drill.line import Size
from tests.drill.running import Entry, Round, Running
from tests.drill.table import table

QUICK = (Size.QUICK, Size.SHORT, Size.LONG)

# The one list. A drill is (size, seed) -> Iterator[Line]; slow ones first, they overlap best.
DRILLS: tuple[Entry, ...] = (
    Entry("storm", "tests.drill.storm:kill_storm", QUICK),
    Entry("model", "tests.drill.model.check:model", QUICK),
    Entry("guards", "tests.drill.guards:guards", limit_s=540),
    Entry("leases", "tests.drill.leases:taken_over"),
    Entry("forked_storm", "tests.drill.forked_storm:forked_storm", QUICK),
    Entry("killed", "tests.drill.points:killed", QUICK, limit_s=420),
    Entry("cut", "tests.drill.points:cut", QUICK),
    Entry("stopped", "tests.drill.points:stopped", QUICK),
    Entry("cuts", "tests.drill.cuts:cut_off"),
    Entry("outage", "tests.drill.outage:outage", QUICK, alone=True, limit_s=480),
    Entry("servers_away", "tests.drill.outages:servers_away"),
    Entry("restore", "tests.drill.restore:restored"),
    Entry("clocks", "tests.drill.clocks:hours_off"),
    Entry("child_stuck", "tests.drill.crowd:child_stuck"),
    Entry("join", "tests.drill.crowd:joined_once", QUICK),
    Entry("flush", "tests.drill.flush:flushed", alone=True),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, judge."""
    wanted = _arguments(arguments)
    entries = _chosen(wanted.size, wanted.only)
    began = time.monotonic()
    print(f"{len(entries)} drills, size {wanted.size}, seed {wanted.seed}", file=sys.stderr)
    all_of_them = Round(
        entries, size=wanted.size, seed=wanted.seed, jobs=wanted.jobs, minutes=wanted.minutes
    )
    over = all_of_them.run()
    over.sort(key=lambda one: entries.index(one.entry))
    lines = [line for one in over for line in one.lines]
    broken = sum(not line.held for line in lines)
    print("\n" + table(lines) + "\n")
    took = f"{time.monotonic() - began:.0f} s, size {wanted.size}, seed {wanted.seed}"
    print(f"{len(lines) - broken} of {len(lines)} lines as promised in {took}")
    if wanted.json:
        _write(wanted.json, over, wanted.size, wanted.seed)
    if broken or wanted.keep:
        print(f"Logs: {all_of_them.folder}")
    else:
        shutil.rmtree(all_of_them.folder, ignore_errors=True)
    return 1 if broken else 0


def _chosen(size: Size, only: str) -> list[Entry]:
    names = [name for name in only.split(",") if name]
    known = [entry.name for entry in DRILLS]
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"no drill is called {', '.join(unknown)}; there are {', '.join(known)}")
    if names:
        return [entry for entry in DRILLS if entry.name in names]
    return [entry for entry in DRILLS if size in entry.sizes]


def _write(file: Path, over: Sequence[Running], size: Size, seed: int) -> None:
    """One JSON object a line: the line's fields, the drill's name, size, seed and seconds."""
    with file.open("wb") as out:
        for one in over:
            about = {"name": one.entry.name, "size": size, "seed": seed}
            for line in one.lines:
                fields = about | {"seconds": round(one.seconds, 1)} | line.as_json()
                out.write(orjson.dumps(fields) + b"\n")


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    words = argparse.ArgumentParser(prog="python -m tests.drill", description=__doc__)
    words.formatter_class = argparse.RawDescriptionHelpFormatter
    names = ", ".join(entry.name for entry in DRILLS)
    jobs = max(2, (os.cpu_count() or 2) // 2)
    words.add_argument("--size", type=Size, choices=list(Size), default=Size.SHORT)
    words.add_argument("--only", default="", metavar="NAME,…", help=f"of: {names}")
    words.add_argument("--seed", type=int, default=random.randrange(10**6), help="of all chance")
    words.add_argument("--jobs", type=int, default=jobs, help=f"drills at a time ({jobs})")
    words.add_argument(
        "--minutes", type=float, default=30, help="how long each storm of a long round blows (30)"
    )
    words.add_argument("--json", type=Path, metavar="FILE", help="the lines as JSON, too")
    words.add_argument("--keep", action="store_true", help="keep the logs of a good round, too")
    return words.parse_args(given)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends what runs, on the way out
    sys.exit(main())
