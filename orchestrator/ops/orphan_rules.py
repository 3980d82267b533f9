"""What an orphan looks like in the rows, each as one statement over an index (DESIGN section 2, 7).

Every move is one transaction, so a single statement never sees half of one: most rules need no
grace. Those under ``LATE`` wait for a sweep, and leave it time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connection

from orchestrator.ops.row_rules import waiting_for_nothing
from orchestrator.ops.sighting import Sighting

LATE_S = 20
"""A sweep looks each second; what it has not taken after so long, it does not find or cannot do."""
STUCK_S = 300
MAX_FOUND = 500
MAX_AGAIN = 20_000

_NAME = "s.key || s.scope"
_LIVE_STEP = "('ready', 'running', 'retrying', 'waiting')"
_WORKING = "('pending', 'running', 'compensating')"
_MOVING = "('compensating', 'pending', 'running', 'waiting')"
_LATE = "orchestrator_now() - make_interval(secs => %(late_s)s)"


@dataclass(frozen=True, slots=True)
class Rule:
    """``sql`` answers (run, tenant, step, words). ``%(runs)s`` narrows it to runs when given;
    a rule that is ``sliced`` reads the part of its table that ``source`` names."""

    name: str
    sql: str
    sliced: str = ""


_FROM = " FROM orchestrator_step s JOIN orchestrator_run r ON r.id = s.run_id"

LEASELESS = Rule(
    "no_lease",
    f"SELECT s.run_id, r.tenant, {_NAME}, 'it runs, but nobody holds its lease'{_FROM}"  # noqa: S608 - constant text
    " WHERE s.state = 'running' AND s.lease_until IS NULL {only}"
    " AND NOT EXISTS (SELECT 1 FROM orchestrator_step i WHERE i.run_id = s.run_id"
    "   AND i.key = s.key AND i.index IS NOT NULL AND s.items_total IS NOT NULL AND s.scope = '')"
    " LIMIT %(limit)s",
)
TIMERLESS = Rule(
    "no_timer",
    f"SELECT s.run_id, r.tenant, {_NAME}, 'it will be retried, but no timer says when'{_FROM}"  # noqa: S608 - constant text
    " WHERE s.state = 'retrying' {only}"
    " AND NOT EXISTS (SELECT 1 FROM orchestrator_timer t"
    "   WHERE t.step_id = s.id AND t.kind = 'retry') LIMIT %(limit)s",
)
WAITLESS = Rule(
    "no_wait",
    f"SELECT s.run_id, r.tenant, {_NAME},"
    f" format('it waits for %%L, but nothing will end that', s.waiting_for){_FROM}"
    f" WHERE s.state = 'waiting' {{only}} AND {waiting_for_nothing('s')} LIMIT %(limit)s",
    sliced="waiting",
)
IDLE = Rule(
    "nothing_moves",
    "SELECT r.id, r.tenant, '', format('the run is %%s, but no step of it is ready, runs,"  # noqa: S608 - constant text
    " will be retried or waits', r.state) FROM orchestrator_run r"
    f" WHERE r.state IN {_MOVING} {{only}} AND NOT EXISTS (SELECT 1 FROM orchestrator_step s"
    f"   WHERE s.run_id = r.id AND s.state IN {_LIVE_STEP}) LIMIT %(limit)s",
    sliced="runs",
)
STUCK = Rule(
    "stuck",
    "SELECT r.id, r.tenant, '', format('the run is %%s, has not moved since %%s, and nothing of it"  # noqa: S608 - constant text
    " is in flight', r.state, to_char(r.updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS'))"
    f" FROM orchestrator_run r WHERE r.state IN {_WORKING} {{only}}"
    " AND r.updated_at < orchestrator_now() - make_interval(secs => %(stuck_s)s)"
    " AND NOT EXISTS (SELECT 1 FROM orchestrator_step s WHERE s.run_id = r.id"
    "   AND (s.state IN ('retrying', 'waiting')"
    "     OR (s.state = 'running' AND s.lease_until IS NOT NULL)"
    "     OR (s.state = 'ready' AND s.dispatched_at > orchestrator_now()"
    "         - make_interval(secs => %(stuck_s)s))))"
    " LIMIT %(limit)s",
    sliced="runs",
)
LEASE_OVER = Rule(
    "lease_over",
    f"SELECT s.run_id, r.tenant, {_NAME}, format('its lease, held by %%s, ended at %%s and no"
    " sweep took it up', s.worker,"
    f" to_char(s.lease_until AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS')){_FROM}"
    f" WHERE s.state = 'running' AND s.lease_until < {_LATE} {{only}}"
    " ORDER BY s.lease_until LIMIT %(limit)s",
)
TIMER_LATE = Rule(
    "timer_late",
    f"SELECT s.run_id, r.tenant, {_NAME}, format('its %%s timer was due at %%s and did not fire',"  # noqa: S608 - constant text
    " t.kind, to_char(t.fire_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS'))"
    " FROM orchestrator_timer t JOIN orchestrator_step s ON s.id = t.step_id"
    " JOIN orchestrator_run r ON r.id = s.run_id"
    f" WHERE t.fire_at < {_LATE} {{only}} ORDER BY t.fire_at LIMIT %(limit)s",
)
RUN_LATE = Rule(
    "run_late",
    "SELECT r.id, r.tenant, '', format('its time was over at %%s and no sweep ended it',"  # noqa: S608 - constant text
    " to_char(r.deadline_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS'))"
    f" FROM orchestrator_run r WHERE r.deadline_at < {_LATE} {{only}}"
    " AND r.state IN ('paused', 'pending', 'running', 'waiting')"
    " ORDER BY r.deadline_at LIMIT %(limit)s",
)
ORPHANS: tuple[Rule, ...] = (
    *(LEASELESS, TIMERLESS, WAITLESS, IDLE),
    *(LEASE_OVER, TIMER_LATE, RUN_LATE),
)

# The part of its table that a sliced rule reads: keyset over a partial index, so that a lap over a
# million waiting rows is a walk of many short statements.
_BOUND = {
    "waiting": (
        "SELECT s.waiting_for, s.run_id::text FROM orchestrator_step s WHERE s.state = 'waiting'"
        " AND (s.waiting_for, s.run_id) > (%s, %s::uuid)"
        " ORDER BY s.waiting_for, s.run_id OFFSET %s LIMIT 1"
    ),
    "runs": (
        f"SELECT r.state, r.id::text FROM orchestrator_run r WHERE r.state IN {_MOVING}"  # noqa: S608 - constant text
        " AND (r.state, r.id) > (%s, %s::uuid) ORDER BY r.state, r.id OFFSET %s LIMIT 1"
    ),
}
_SLICE = {
    "waiting": (
        " AND (s.waiting_for, s.run_id) > (%(lo)s, %(lo_id)s::uuid)",
        " AND (s.waiting_for, s.run_id) <= (%(hi)s, %(hi_id)s::uuid)",
    ),
    "runs": (
        " AND (r.state, r.id) > (%(lo)s, %(lo_id)s::uuid)",
        " AND (r.state, r.id) <= (%(hi)s, %(hi_id)s::uuid)",
    ),
}
START = ("", "00000000-0000-0000-0000-000000000000")
Place = tuple[str, str]


def find_bound(sliced: str, start: Place, size: int) -> Place | None:
    """Where the slice of ``size`` rows from ``start`` ends; None: it reaches the end."""
    with connection.cursor() as cursor:
        cursor.execute(_BOUND[sliced], [*start, size - 1])
        row = cursor.fetchone()
    return None if row is None else (row[0], row[1])


def find_in_slice(rule: Rule, start: Place, end: Place | None) -> list[Sighting]:
    """What a sliced rule finds behind ``start`` up to ``end`` (None: to the last row)."""
    after, until = _SLICE[rule.sliced]
    params: dict[str, Any] = {"lo": start[0], "lo_id": start[1]}
    if end is not None:
        params |= {"hi": end[0], "hi_id": end[1]}
    return _find(rule, after + (until if end is not None else ""), params)


def find(rule: Rule) -> list[Sighting]:
    """What a rule finds in its whole (small) index."""
    return _find(rule, "", {})


def find_again(rule: Rule, runs: list[UUID]) -> list[Sighting]:
    """What a rule still finds of these runs."""
    return _find(rule, " AND r.id = ANY(%(runs)s)", {"runs": runs, "limit": MAX_AGAIN})


def _find(rule: Rule, only: str, params: dict[str, Any]) -> list[Sighting]:
    known = {"limit": MAX_FOUND, "late_s": LATE_S, "stuck_s": STUCK_S}
    with connection.cursor() as cursor:
        cursor.execute(rule.sql.format(only=only), known | params)
        return [_sighting(rule.name, *row) for row in cursor.fetchall()]


def _sighting(rule: str, run_id: UUID, tenant: str, step: str, words: str) -> Sighting:
    about = f"Step {step} of run {run_id}" if step else f"Run {run_id}"
    return Sighting(
        key=f"{run_id}:{step}:{rule}",
        title=f"{about}: {words}",
        detail={
            "rule": rule,
            "step": step,
            "runbook": "stuck-run" if rule == "stuck" else "orphaned-run",
        },
        severity="critical",
        tenant=tenant,
        run_id=run_id,
    )
