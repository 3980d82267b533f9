"""What the drills with real processes share: a world, two providers, and the questions asked."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import connection

from tests.chaos import checks, shapes
from tests.chaos.place import Place
from tests.chaos.processes import world
from tests.chaos.shapes import Shape
from tests.drill.providers import Provider, providers

BOOTED = ("worker-engine", "worker-tool", "worker-agent", "pulse")


@dataclass
class Scene:
    """A place with nothing running in it yet, beside two providers that know what they did."""

    place: Place
    keyed: Provider
    keyless: Provider

    def __post_init__(self) -> None:
        self.world = self.place.world
        self.fleet = self.place.fleet
        self._began = time.monotonic()

    def say(self, words: str) -> None:
        """A line for the drill's log."""
        print(f"{time.monotonic() - self._began:7.1f} s  {words}", file=sys.stderr, flush=True)

    def doubled(self) -> list[str]:
        """What a provider did twice, by its own book."""
        return [
            f"the provider's book has {operation} {reference} twice"
            for provider in (self.keyed, self.keyless)
            for operation, reference in provider.stats()["doubled"]
        ]

    def applied(self, operation: str) -> dict[str, int]:
        """How often each affair stands in the books."""
        found: dict[str, int] = {}
        for provider in (self.keyed, self.keyless):
            for entry in provider.listing():
                if entry["operation"] == operation:
                    found[entry["reference"]] = found.get(entry["reference"], 0) + 1
        return found

    def faults(self) -> list[str]:
        """What no world may have when its runs are over, asked of the database."""
        self.place.fleet.until(lambda: not checks.found(checks.LEFT), 15)
        return checks.breaches()


@contextmanager
def scene(*, lease_s: float, seed: int, publish: Sequence[Shape]) -> Iterator[Scene]:
    """Servers, providers and a nursery for the length of the block."""
    folder = Path(tempfile.mkdtemp(prefix="world-"))
    with providers(seed) as (keyed, keyless), world(folder, lease_s=lease_s) as mine:
        shapes.publish_shapes(*publish)
        yield Scene(Place(mine), keyed, keyless)


def ask(sql: str, *params: Any) -> list[tuple[Any, ...]]:
    """The rows that a question to the database finds."""
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return list(cursor.fetchall())


def history(run: UUID) -> list[tuple[str, str, float]]:
    """A run's history: type, step, and when, in seconds since 1970."""
    return [
        (kind, step, at)
        for kind, step, at in ask(
            "SELECT type, step, extract(epoch FROM at)::float8 FROM orchestrator_event"
            " WHERE run_id = %s ORDER BY seq",
            run,
        )
    ]


def spread(seconds: Sequence[float], name: str = "s") -> dict[str, float]:
    """Median, 99th percentile and worst of what was measured."""
    ordered = sorted(seconds)
    if not ordered:
        return {}
    last = len(ordered) - 1
    return {
        f"p50 {name}": round(ordered[last // 2], 2),
        f"p99 {name}": round(ordered[min(last, round(last * 0.99))], 2),
        f"max {name}": round(ordered[last], 2),
    }


def effect_shape(name: str, tool: str, operation: str, *after: str) -> Shape:
    """One effect under the run's own reference, held for ``sleep_ms`` at the first attempt; then
    steps that add one, on these queues."""
    reference = f"{operation}-${{{{ input.value }}}}"
    steps: dict[str, Any] = {
        "act": {
            "type": "tool",
            "tool": tool,
            "input": {"reference": reference, "hold_ms": "${{ input.sleep_ms }}"},
            "effect": {"key": f"{operation}:${{{{ input.value }}}}"},
            "timeout": "10m",
        }
    }
    before = "act"
    for number, queue in enumerate(after):
        step = shapes.work("input.value", before, queue=queue, input={"sleep_ms": 0})
        before = f"then{number}"
        steps[before] = step
    return Shape(name=name, steps=steps)
