"""``manage.py breakers``: what is shut, limited or ailing, and how many steps wait for it."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from orchestrator import engine
from orchestrator.engine import ServicePicture


class Command(BaseCommand):
    """One line for each service, hold and quota."""

    help = "List services with their breakers, holds, quotas and the steps that wait."

    def handle(self, *_: Any, **__: Any) -> None:
        """Print the list."""
        found = engine.services()
        if not found:
            self.stdout.write("Nothing is held or limited, and no tool names a service.")
        for one in found:
            self.stdout.write(f"{one.key:32} {one.state:10} {one.parked:6} waiting  {_more(one)}")


def _more(one: ServicePicture) -> str:
    words = []
    if one.held_by:
        until = f" until {one.held_until:%Y-%m-%d %H:%M:%S} UTC" if one.held_until else ""
        words.append(f"held by {one.held_by}{until}: {one.held_reason}")
    if one.max_in_flight is not None:
        words.append(f"at most {one.max_in_flight} at once")
    if one.calls:
        words.append(f"{one.failures} of {one.calls} calls failed")
    if one.next_probe_at is not None:
        words.append(f"next probe {one.next_probe_at:%H:%M:%S} UTC")
    if one.last_error and one.state in ("open", "half_open"):
        words.append(f"last: {one.last_error[:80]}")
    return "; ".join(words)
