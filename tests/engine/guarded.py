"""What the tests of guards begin with: a claim that its worker left, and a settle as written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from orchestrator import engine
from orchestrator.models import (
    rows,
)
from orchestrator.models.moves import Write
from tests.engine import probes
from tests.engine.carrier import Always, Carrier
from tests.engine.runs import (
    hook,
    kill,
    started,
)


def running(carrier: Carrier) -> UUID:
    """A run whose only step runs; its worker is dead."""
    probes.hooks["die"] = probes.die
    run_id = started({"a": hook("die")})
    kill(carrier)
    return run_id


def completion(run: rows.RunRow, row: rows.StepRow, **subject: Any) -> Write:
    """A settle as a worker would write it who holds this version and this fence."""
    move = {
        "id": str(row.id),
        "from": str(row.state),
        "fence": row.fence,
        "to": "completed",
        "cost": 0,
        "output": "late",
    }
    snapshot = run.snapshot.copy()
    return Write(
        run_id=run.id,
        version=run.version,
        compact=snapshot.pack(),
        state="running",
        subject=move | subject,
        events=[("step.completed", row.key, {}, "")],
    )


def work_on(run_id: UUID, key: str = "a", control: engine.LaneControl | None = None) -> int:
    return engine.run_step(engine.Order(run_id=run_id, key=key), control or Always())


class Never:
    """A worker that gives way at once."""

    def takes_next(self, own_messages: Callable[[], int]) -> bool:
        return False
