"""A world in which runs are started and waited for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

from django.db import connection

from orchestrator.models import Run, Step
from tests.chaos.processes import World, tail
from tests.chaos.shapes import Input, Shape
from tests.chaos.storm import CALLER, OVER
from workflows_app.triggering import start

GIVEN: Input = {"value": 7, "sleep_ms": 0, "items": [1, 2, 3, 4, 5, 6, 7]}


class Place:
    """A world in which runs are started and waited for."""

    def __init__(self, mine: World) -> None:
        self.world = mine
        self.fleet = mine.fleet

    def start(self, shape: Shape, **changes: Any) -> UUID:
        """Start a run as a caller does."""
        body = {"input": GIVEN | changes}
        return start(CALLER, shape.name, body, key=str(uuid4())).run_id

    def await_end(self, runs: Sequence[UUID], seconds: float = 40) -> None:
        """Return when all have ended."""
        self.fleet.until(lambda: not self.open(runs), seconds, lambda: self._where(runs))

    def open(self, runs: Sequence[UUID]) -> list[Run]:
        """Those that have not ended."""
        return list(Run.objects.filter(pk__in=runs).exclude(state__in=OVER))

    def _where(self, runs: Sequence[UUID]) -> str:
        where = [
            f"{run.workflow} {run.state}: "
            + ", ".join(f"{s.key}{s.scope} {s.state}" for s in Step.objects.filter(run=run))
            for run in self.open(runs)
        ]
        return "\n".join([*where, tail(self.fleet.logs)])

    def bodies(self, run: UUID) -> dict[str, int]:
        """How often each step's body ran."""
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT step || scope, count(*) FROM chaos_ledger WHERE run = %s GROUP BY 1", [run]
            )
            return dict(cursor.fetchall())

    def assert_right(self, shape: Shape, run: UUID) -> None:
        """It ended as it should, and every body ran once."""
        found = Run.objects.get(pk=run)
        assert (found.state, found.output) == (shape.state, shape.expected(GIVEN)), shape.name
        bodies = self.bodies(run)
        assert set(bodies.values()) == {1}, f"{shape.name}: {bodies}"
