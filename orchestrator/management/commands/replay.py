"""``manage.py replay``: do recorded histories lead to where their runs stand?"""

from __future__ import annotations

import time
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError

from orchestrator.core.durations import parse_duration
from orchestrator.core.ids import uuid7
from orchestrator.engine.reading import database_now
from orchestrator.engine.replay_checks import check_replays
from orchestrator.engine.replaying import Replayed, replay_runs
from orchestrator.models import Run, replay_rows

_PAGE = 1000
_SAY_EVERY_S = 2.0
_SHOWN = 20
_NEWEST = 100


class Command(BaseCommand):
    """Exit status 1 with the first difference of each run that has one."""

    help = (
        "Decide recorded histories anew and compare: every event, the compact state, the rows."
        " Without arguments: a hundred runs by chance. The result is kept with each run."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Which runs, and how."""
        parser.add_argument("run", nargs="*", type=UUID, help="ids of runs")
        parser.add_argument("--all", action="store_true", help="every run there is")
        parser.add_argument("--sample", type=int, metavar="N", help="so many runs, by chance")
        parser.add_argument(
            "--since", metavar="WHEN", help="only runs born since: 24h, 7d, or an ISO instant"
        )
        parser.add_argument(
            "--deep",
            action="store_true",
            help="also work out conditions anew, over the outputs that are stored",
        )
        parser.add_argument(
            "--no-store", action="store_true", help="read only: keep no result with the runs"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        """Replay, print, and say by the exit status whether all is well."""
        replaying = replay_runs if options["no_store"] else check_replays
        tally = _Tally(self)
        for replayed in replaying(self._chosen(options), deep=options["deep"]):
            tally.count(replayed)
        tally.sum_up()
        if tally.n_differing:
            raise CommandError(f"{tally.n_differing} of {tally.n_runs} runs differ", returncode=1)

    def _chosen(self, options: dict[str, Any]) -> Iterable[UUID]:
        named, sample = options["run"], options["sample"]
        if sum((bool(named), options["all"], sample is not None)) > 1:
            raise CommandError("name runs, or --all, or --sample N: one of them", returncode=2)
        if sample is not None and sample < 1:
            raise CommandError("--sample needs a number from 1", returncode=2)
        if named:
            return _known(named)
        since = _first_id(options["since"])
        if options["all"] or (options["since"] and sample is None):
            return _all(since)
        return replay_rows.some_runs(sample or _NEWEST, since)


class _Tally:
    """What was seen so far, told each two seconds."""

    def __init__(self, command: Command) -> None:
        self.command = command
        self.n_runs = self.n_lines = self.n_differing = self.n_unread = 0
        self.began = self.said = time.monotonic()

    def count(self, replayed: Replayed) -> None:
        """One run more."""
        self.n_runs += 1
        self.n_lines += replayed.n_lines
        if replayed.unread:
            self.n_unread += 1
        if replayed.difference is not None:
            self.n_differing += 1
            self._show(replayed)
        if time.monotonic() - self.said > _SAY_EVERY_S:
            self.said = time.monotonic()
            self.command.stderr.write(f"… {self.n_runs} runs, {self.n_lines} events")

    def _show(self, replayed: Replayed) -> None:
        if self.n_differing > _SHOWN or replayed.difference is None:
            return
        where, difference = f"{replayed.workflow} {replayed.run_id}", replayed.difference
        place = f"event {difference.sequence}" if difference.sequence else "the rows at the end"
        self.command.stderr.write(f"{where} differs in {place}")
        self.command.stderr.write(f"  expected  {difference.expected}")
        self.command.stderr.write(f"  recorded  {difference.recorded}")

    def sum_up(self) -> None:
        """The last line."""
        seconds = time.monotonic() - self.began
        n_same = self.n_runs - self.n_differing - self.n_unread
        unread = f", {self.n_unread} not replayed (older rules)" if self.n_unread else ""
        pace = f"{self.n_lines / seconds:,.0f} events/s" if seconds > 0 else ""
        self.command.stdout.write(
            f"{n_same} of {self.n_runs} runs identical{unread}: {self.n_lines:,} events in"
            f" {seconds:.1f} s, {pace}"
        )


def _known(named: list[UUID]) -> list[UUID]:
    known = set(Run.objects.filter(pk__in=named).values_list("pk", flat=True))
    missing = [str(run_id) for run_id in named if run_id not in known]
    if missing:
        raise CommandError(f"there is no run {', '.join(missing)}", returncode=2)
    return named


def _all(since: UUID) -> Iterator[UUID]:
    """Runs by birth, a page at a time; those born meanwhile, too, up to now."""
    last, end = UUID(int=since.int - 1), uuid7(unix_ms=_ms(database_now()), random=b"\xff" * 10)
    while page := replay_rows.runs_after(last, _PAGE):
        yield from (run_id for run_id in page if run_id <= end)
        last = page[-1]
        if last > end:
            return


def _first_id(since: str | None) -> UUID:
    """The first id of a run born then."""
    if since is None:
        return UUID(int=1)
    return uuid7(unix_ms=_ms(_instant(since)), random=bytes(10))


def _instant(since: str) -> datetime:
    try:
        return database_now() - parse_duration(since)
    except ValueError:
        pass
    try:
        at = datetime.fromisoformat(since)
    except ValueError:
        raise CommandError(
            f"--since: {since!r} is neither a duration (24h, 7d) nor an ISO instant", returncode=2
        ) from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _ms(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
