"""``manage.py compat``: could this build go on with what is open? Ask it before a deploy."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from orchestrator import engine
from workflows_app.catalogue import TenantCatalogue
from workflows_app.models import WorkflowVersion

SHOWN = 5


class Command(BaseCommand):
    """A line for each blueprint; exit status 1 when a run of one could not go on."""

    help = (
        "Check the blueprint of every open run, and of every default version, against what is"
        " installed here: executors, tools with their arguments and flags, models, queues, formats."
        " Run it with the new code against the live database, before the new workers start."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """``[--quiet]``."""
        parser.add_argument("--quiet", action="store_true", help="only what is not ok")

    def handle(self, *_: Any, **options: Any) -> None:
        """Look, print, and say by the exit status whether all can go on."""
        defaults = WorkflowVersion.objects.filter(is_default=True)
        found = list(
            engine.check_compatibility(
                defaults.values_list("blueprint_id", flat=True), TenantCatalogue
            )
        )
        self.stdout.write(_HEAD)
        for one in found:
            if one.verdict != "ok" or not options["quiet"]:
                self._show(one)
        stuck = [one for one in found if one.blocking]
        n_open = sum(one.n_open for one in found)
        self.stdout.write(f"{len(found)} blueprints, {n_open} open runs, {len(stuck)} cannot go on")
        if stuck:
            raise CommandError(
                f"{sum(one.n_open for one in stuck)} open runs could not go on with this build",
                returncode=1,
            )

    def _show(self, one: engine.Compatibility) -> None:
        default = "default" if one.is_default else ""
        self.stdout.write(
            f"{one.name + '@' + str(one.version):<32} {one.digest[:12]}  {one.tenant:<12}"
            f" {one.n_open:>6}  {default:<8} {one.verdict}"
        )
        reasons = [*one.blocking, *one.stricter]
        for words in reasons[:SHOWN]:
            self.stdout.write(f"    {words}")
        if len(reasons) > SHOWN:
            self.stdout.write(f"    … and {len(reasons) - SHOWN} more")


_HEAD = f"{'workflow':<32} {'digest':<12}  {'tenant':<12} {'open':>6}  {'':<8} verdict"
