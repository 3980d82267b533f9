"""``python -m tests.chaos``: the storm in large, with one table as it goes.

A PostgreSQL, a Valkey, all workers, pulse and two beats of their own in a temporary folder; what
runs elsewhere on the machine is left alone. Ends 0 when every promise held, 1 when one did not
(the table says which; the logs are then kept).

    python -m tests.chaos                         200 runs in 3 minutes, a new seed
    python -m tests.chaos --runs 1000 --minutes 10 --seed 7
    python -m tests.chaos --only restart_postgres,kill_a_worker
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings.test"

import django

django.setup()  # before anything that has models

from tests.chaos import monkeys  # noqa: E402
from tests.chaos.processes import world  # noqa: E402
from tests.chaos.storm import Storm  # noqa: E402

COLUMNS = "{:>7}  {:>7}  {:>6}  {:>5}  {}"


def main() -> int:
    """Blow, print, judge."""
    wanted = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the blocks below clean up
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    began = time.monotonic()
    print(f"{wanted.runs} runs in {wanted.minutes:g} min, seed {wanted.seed}; logs in {folder}\n")
    with world(folder, lease_s=wanted.lease) as mine:
        storm = Storm(
            mine,
            runs=wanted.runs,
            seed=wanted.seed,
            lasts_s=wanted.minutes * 60,
            every_s=wanted.every,
            monkeys=[getattr(monkeys, name) for name in wanted.only.split(",")]
            if wanted.only
            else monkeys.ALL,
        )
        print(COLUMNS.format("seconds", "started", "ended", "open", ""))

        def say(what: str) -> None:
            now = storm.progress()
            line = (f"{time.monotonic() - began:.1f}", now["started"], now["ended"], now["open"])
            print(COLUMNS.format(*line, what), flush=True)

        storm.say = say
        storm.blow()
        say("the storm is over")
        _report(storm)
    if not storm.failures and not wanted.keep:
        shutil.rmtree(folder)
    return 1 if storm.failures else 0


def _report(storm: Storm) -> None:
    print()
    for name, count in sorted(storm.done.items()):
        print(f"{name:<40} {count:>7}")
    print()
    for name, figure in storm.facts().items():
        print(f"{name:<40} {figure:>7}")
    print()
    if storm.failures:
        print("NOT AS PROMISED:", *storm.failures, sep="\n  ")
    else:
        print("Every run ended as it should; no completed work ran again; no history has a gap.")


def _arguments() -> argparse.Namespace:
    words = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    words.formatter_class = argparse.RawDescriptionHelpFormatter
    words.add_argument("--runs", type=int, default=200, help="how many runs (200)")
    words.add_argument("--minutes", type=float, default=3, help="over how long they start (3)")
    words.add_argument("--seed", type=int, default=random.randrange(10**6), help="of all chance")
    words.add_argument("--every", type=float, default=3, help="seconds between two monkeys (3)")
    words.add_argument("--lease", type=float, default=6, help="seconds of a lease (6)")
    words.add_argument("--keep", action="store_true", help="keep the logs of a good storm too")
    words.add_argument("--only", default="", help="comma list of monkeys (see monkeys.py)")
    return words.parse_args()


if __name__ == "__main__":
    sys.exit(main())
