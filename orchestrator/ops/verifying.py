"""The invariants on a beat: the runs that changed since the last look, newest change first."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import OperationalError, connection

from orchestrator.crash import Unit
from orchestrator.models import Alert, duty_rows
from orchestrator.ops.alerting import close_cured, raise_alerts
from orchestrator.ops.invariants import Finding, Pace, check_runs, newest_runs
from orchestrator.ops.patience import ran_out_of_patience, set_patience
from orchestrator.ops.sighting import Sighting

DUTY = "verify"
KIND = "invariant"
EVERY_S = 240.0
"""Beat asks each five minutes; a second one at the same time finds it done."""
MAX_RUNS = 2_000
BUDGET_S = 60.0
STATEMENT_MS = 5_000
NAMED = 20

# The history's own counter says which runs changed; its BRIN index finds the end of the table.
_LAST_EVENT = (
    "SELECT coalesce(pg_sequence_last_value("
    "pg_get_serial_sequence('orchestrator_event', 'id')::regclass), 0)"
)
_CHANGED = (
    "SELECT c.run_id, count(*) OVER () FROM (SELECT run_id, max(id) AS last"
    "  FROM orchestrator_event WHERE id > %s GROUP BY run_id) c"
    " JOIN orchestrator_run r ON r.id = c.run_id ORDER BY c.last DESC LIMIT %s"
)
_OVERLAP = 1_000
"""Lines of history that were not committed yet at the last look may stand so far back."""


@dataclass(frozen=True, slots=True)
class Changed:
    """Runs that changed: how many, the newest of them, and how far the history went."""

    n_runs: int
    newest: list[UUID]
    last_event: int


def verify_in_turn() -> list[Finding] | None:
    """Verify what changed, if it is time and nobody else does; None: not our turn."""
    turn = duty_rows.take_turn(DUTY, every_s=EVERY_S)
    if turn is None:
        return None
    begun = time.monotonic()
    changed = _changed_since(turn.notes.get("last_event"))
    findings = verify(changed.newest, Pace(STATEMENT_MS, begun + BUDGET_S))
    duty_rows.note(
        DUTY,
        {
            "last_event": changed.last_event,
            "runs_changed": changed.n_runs,
            "runs_looked_at": findings[0].n_runs,
            "runs_left_out": {f.rule: f.n_skipped for f in findings if f.n_skipped},
            "broken": {f.rule: len(f.violations) for f in findings if f.violations},
            "took_s": round(time.monotonic() - begun, 2),
        },
    )
    return findings


def verify(run_ids: Sequence[UUID], pace: Pace | None = None) -> list[Finding]:
    """Check these runs, and those that open alerts name; one alert for each broken rule, closed
    when a look at its runs finds nothing any more."""
    known = {alert.key: _runs_of(alert) for alert in _open()}
    again = [run_id for runs in known.values() for run_id in runs]
    findings = check_runs(list(dict.fromkeys([*again, *run_ids])), pace)
    broken = [_sighting(finding) for finding in findings if finding.violations]
    whole = {finding.rule for finding in findings if not finding.n_skipped}
    raise_alerts(KIND, broken)
    close_cured(KIND, [rule for rule in known if rule in whole], broken)
    return findings


def _open() -> Sequence[Alert]:
    return list(Alert.objects.filter(kind=KIND, closed_at__isnull=True))


def _runs_of(alert: Alert) -> list[UUID]:
    return [UUID(run) for run in alert.detail.get("runs", ())]


def _sighting(finding: Finding) -> Sighting:
    runs = list(dict.fromkeys(str(violation.run_id) for violation in finding.violations))
    more = "" if len(runs) == 1 else f" and {len(runs) - 1} more"
    named = [
        {"run": str(v.run_id), "step": v.step, "words": v.words} for v in finding.violations[:NAMED]
    ]
    return Sighting(
        key=finding.rule,
        title=f"An invariant is broken: {finding.words} (run {runs[0]}{more})",
        detail={"rule": finding.rule, "runs": runs, "seen": named, "runbook": "invariant-broken"},
        severity="critical",
        run_id=UUID(runs[0]),
    )


def _changed_since(event: int | None) -> Changed:
    """What changed behind that line of the history; the newest runs when nobody looked before, or
    when counting the changed ones takes too long."""
    last = int(_rows(_LAST_EVENT, [])[0][0])
    if event is not None:
        try:
            with Unit("verify.changed"):
                set_patience(STATEMENT_MS)
                rows = _rows(_CHANGED, [event - _OVERLAP, MAX_RUNS])
            return Changed(rows[0][1] if rows else 0, [run_id for run_id, _ in rows], last)
        except OperationalError as error:
            if not ran_out_of_patience(error):
                raise
    newest = newest_runs(MAX_RUNS)
    return Changed(len(newest), newest, last)


def _rows(sql: str, params: list[Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        found: list[tuple[Any, ...]] = cursor.fetchall()
    return found
