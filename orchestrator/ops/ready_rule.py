"""READY work that might start and that no message is on its way for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection

from orchestrator.core import planning
from orchestrator.core.decision import Ref
from orchestrator.core.snapshot import unpack
from orchestrator.engine.blueprints import compiled
from orchestrator.models import Run
from orchestrator.ops.orphan_rules import LATE_S, MAX_AGAIN, MAX_FOUND
from orchestrator.ops.sighting import Sighting

# The sweep's own bound (models/sweeps.py, stale_ready, a long queue), and some grace. READY work
# beside a running step mostly waits for its place: it is looked at when that step has ended.
_CANDIDATES = """
SELECT s.run_id, s.position, s.index, s.key || s.scope, s.queue, s.n_dispatched,
       coalesce(s.dispatched_at, s.ready_at)
  FROM orchestrator_step s JOIN orchestrator_run r ON r.id = s.run_id
 WHERE s.state = 'ready' AND r.state IN ('pending', 'running', 'compensating') {only}
   AND coalesce(s.dispatched_at, s.ready_at) < orchestrator_now() - make_interval(secs =>
     %(late_s)s + least(15 * power(2, greatest(least(s.n_dispatched, 3) - 1, 0)), 60))
   AND (s.dispatched_at IS NOT NULL OR NOT EXISTS (
     SELECT 1 FROM orchestrator_step b WHERE b.run_id = s.run_id AND b.state = 'running'))
 ORDER BY s.ready_at LIMIT %(limit)s
"""


@dataclass(frozen=True, slots=True)
class _Candidate:
    run_id: UUID
    position: int
    index: int | None
    name: str
    queue: str
    n_dispatched: int
    since: datetime


def undispatched(runs: Sequence[UUID] | None = None) -> list[Sighting]:
    """READY steps that planning would send for at once, and that no sweep has sent for in time."""
    only = "" if runs is None else "AND s.run_id = ANY(%(runs)s)"
    limit = MAX_FOUND if runs is None else MAX_AGAIN
    params: dict[str, Any] = {"late_s": LATE_S, "limit": limit, "runs": list(runs or ())}
    with connection.cursor() as cursor:
        cursor.execute(_CANDIDATES.format(only=only), params)
        found = [_Candidate(*row) for row in cursor.fetchall()]
    return list(_admissible(found)) if found else []


def _admissible(found: Sequence[_Candidate]) -> Iterator[Sighting]:
    by_run: defaultdict[UUID, list[_Candidate]] = defaultdict(list)
    for candidate in found:
        by_run[candidate.run_id].append(candidate)
    columns = ("id", "tenant", "blueprint_id", "compact")
    for run_id, tenant, blueprint_id, compact in Run.objects.filter(
        pk__in=by_run, state__in=("pending", "running", "compensating")
    ).values_list(*columns):
        stale = {Ref(c.position, c.index): c for c in by_run[run_id]}
        decision = planning.redispatch(compiled(blueprint_id), unpack(compact), list(stale))
        for ref in decision.dispatch:
            if ref in stale:
                yield _sighting(tenant, stale[ref])


def _sighting(tenant: str, lost: _Candidate) -> Sighting:
    sent = f"{lost.n_dispatched} messages were sent, the last" if lost.n_dispatched else "ready"
    words = f"it may start, but no message is on its way ({sent} at {lost.since:%Y-%m-%d %H:%M:%S})"
    return Sighting(
        key=f"{lost.run_id}:{lost.name}:not_dispatched",
        title=f"Step {lost.name} of run {lost.run_id}: {words}",
        detail={
            "rule": "not_dispatched",
            "step": lost.name,
            "queue": lost.queue,
            "runbook": "orphaned-run",
        },
        severity="critical",
        tenant=tenant,
        run_id=lost.run_id,
    )
