"""``manage.py compare_provider``: what the providers have in their books, against our receipts."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from orchestrator.core.durations import parse_duration
from orchestrator.engine import database_now
from orchestrator.ops.comparing import Comparison, compare_all, listing_tools


class Command(BaseCommand):
    """One table of all books; exit status 1 when one differs or cannot be read."""

    help = "Compare the listings of providers with our receipts, as beat does each night."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """``[TOOL …] [--since 3d] [--tenant T]``."""
        parser.add_argument("tool", nargs="*", help="tools that name a listing (default: all)")
        parser.add_argument("--since", help="an instant (2030-01-31T00:00:00Z) or a duration (7d)")
        parser.add_argument("--tenant", help="one tenant only")

    def handle(self, *_: Any, **options: Any) -> None:
        """Compare, print, and say by the exit status whether the books agree."""
        known = listing_tools()
        for name in options["tool"]:
            if name not in known:
                have = ", ".join(known) or "none"
                raise CommandError(f"no tool {name!r} names a listing (those that do: {have})")
        since = _instant(options["since"]) if options["since"] else None
        tools = options["tool"] or known
        if not tools:
            self.stdout.write("No tool names a listing: there is nothing to compare.")
            return
        done = []
        for one in compare_all(tools, tenant=options["tenant"], since=since):
            self.stdout.write("\n".join(_lines(one)))
            done.append(one)
        if not done:
            self.stdout.write("No tenant has published anything: there is nothing to compare.")
        bad = sum(bool(one.mismatches or one.error) for one in done)
        if bad:
            raise CommandError(f"{bad} books differ or could not be read", returncode=1)


def _lines(one: Comparison) -> list[str]:
    counts = ", ".join(f"{n} {kind}" for kind, n in one.counts.items())
    verdict = f"NOT READ: {one.error}" if one.error else counts or "agree"
    cut = "" if one.whole else " (cut short: nothing is called missing)"
    head = (
        f"{one.tool}  {one.tenant}  {one.since:%Y-%m-%d %H:%M} to {one.until:%Y-%m-%d %H:%M} UTC"
        f"  {one.n_listed} listed  {one.n_receipts} receipts  {verdict}{cut}"
    )
    return [
        head,
        *(
            f"  {m.kind:<9}  {m.external_ref or '-':<24}  {m.key or '-':<32}  {m.words}"
            f"{f' (run {m.run_id})' if m.run_id else ''}"
            for m in one.mismatches
        ),
    ]


def _instant(text: str) -> datetime:
    try:
        return database_now() - timedelta(seconds=parse_duration(text).total_seconds())
    except ValueError:
        pass
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(
            f"--since {text!r} is neither an instant (2030-01-31T00:00:00Z) nor a duration (7d)"
        ) from None
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)
