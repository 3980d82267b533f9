"""``manage.py verify``: is what must be true of the stored runs true?"""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError

from orchestrator.models import Run
from orchestrator.ops.invariants import Finding, check_runs, newest_runs


class Command(BaseCommand):
    """One table of all rules; exit status 1 with the violations named when one is broken."""

    help = "Check the invariants of the newest runs, or of the runs named. Reads only."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Which runs, and how many."""
        parser.add_argument("run", nargs="*", type=UUID, help="ids of runs (default: the newest)")
        parser.add_argument("--limit", type=int, default=10_000, help="how many of the newest runs")

    def handle(self, *_: Any, **options: Any) -> None:
        """Look, print, and say by the exit status whether all is well."""
        findings = check_runs(self._chosen(options["run"], options["limit"]))
        width = max(len(finding.rule) for finding in findings)
        for finding in findings:
            self.stdout.write(_line(finding, width))
        broken = [violation for finding in findings for violation in finding.violations]
        for violation in broken:
            step = violation.step or "-"
            self.stderr.write(f"{violation.run_id} {step} {violation.rule}: {violation.words}")
        if broken:
            raise CommandError(f"{len(broken)} violations", returncode=1)

    def _chosen(self, named: list[UUID], limit: int) -> list[UUID]:
        if not named:
            return newest_runs(limit)
        known = set(Run.objects.filter(pk__in=named).values_list("pk", flat=True))
        missing = [str(run_id) for run_id in named if run_id not in known]
        if missing:
            raise CommandError(f"there is no run {', '.join(missing)}", returncode=2)
        return named


def _line(finding: Finding, width: int) -> str:
    n_broken = len(finding.violations)
    verdict = "ok" if not n_broken else f"BROKEN {n_broken}"
    return f"{finding.rule:<{width}}  {finding.n_runs:>6} runs  {verdict:<10}  {finding.words}"
