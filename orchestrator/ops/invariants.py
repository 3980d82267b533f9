"""What must be true of every stored run; ``manage.py verify`` and the tests ask.

Each batch of runs is read in one snapshot of the database, so that a run on the move is seen whole.
Reading only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db import OperationalError, transaction

from orchestrator.models import Run
from orchestrator.models.statements import one_snapshot
from orchestrator.ops.compact_rules import compact_differences, early_starts, sagas
from orchestrator.ops.patience import ran_out_of_patience, set_patience
from orchestrator.ops.row_rules import ROW_RULES, old_messages
from orchestrator.ops.violation import Violation

BATCH = 200
PACED_BATCH = 50
MAX_NAMED = 100
"""Violations of one rule that are named; a broken rule is usually broken many times."""

Find = Callable[[Sequence[UUID]], Iterable[Violation]]

RULES: dict[str, tuple[str, Find]] = {
    **ROW_RULES,
    "compact_state": ("the compact state is what the rows say", compact_differences),
    "needs_first": ("no step started before its needs were settled", early_starts),
    "saga_complete": ("a run that did not complete says truly what was undone", sagas),
}
OUTBOX = "outbox_age"
OUTBOX_WORDS = "no message waits in the outbox for minutes"


@dataclass(slots=True)
class Finding:
    """One rule after a look: how many runs were looked at, what broke it, and how many runs were
    left out because the rule took too long over them."""

    rule: str
    words: str
    n_runs: int
    violations: list[Violation]
    n_skipped: int = 0


@dataclass(frozen=True, slots=True)
class Pace:
    """How a look keeps out of the way of live work: no statement takes longer than
    ``statement_ms``, and nothing is begun after ``until`` (``time.monotonic``)."""

    statement_ms: int
    until: float


def check_runs(run_ids: Iterable[UUID], pace: Pace | None = None) -> list[Finding]:
    """Check these runs against every rule, in batches; then the outbox.

    With a ``pace``, a rule that takes too long over a batch leaves it out, and what is not reached
    in time is not looked at: ``n_runs`` and ``n_skipped`` of each finding say so.
    """
    size = BATCH if pace is None else PACED_BATCH
    findings = {rule: Finding(rule, words, 0, []) for rule, (words, _) in RULES.items()}
    for batch in _batches(run_ids, size):
        if pace is not None and time.monotonic() > pace.until:
            break
        with one_snapshot():
            for rule, (_, find) in RULES.items():
                _check(findings[rule], find, batch, pace)
    n_runs = max(finding.n_runs for finding in findings.values())
    return [
        *findings.values(),
        Finding(OUTBOX, OUTBOX_WORDS, n_runs, list(old_messages(MAX_NAMED))),
    ]


def _check(finding: Finding, find: Find, batch: Sequence[UUID], pace: Pace | None) -> None:
    """One rule over one batch; both are counted."""
    room = MAX_NAMED - len(finding.violations)
    if pace is None:
        finding.violations += list(find(batch))[:room]
        finding.n_runs += len(batch)
        return
    try:
        with transaction.atomic():
            set_patience(pace.statement_ms)
            finding.violations += list(find(batch))[:room]
        finding.n_runs += len(batch)
    except OperationalError as error:
        if not ran_out_of_patience(error):
            raise
        finding.n_skipped += len(batch)


def newest_runs(limit: int) -> list[UUID]:
    """The ids of the newest runs of all tenants."""
    return list(Run.objects.order_by("-id").values_list("id", flat=True)[:limit])


def _batches(run_ids: Iterable[UUID], size: int) -> Iterator[list[UUID]]:
    batch: list[UUID] = []
    for run_id in run_ids:
        batch.append(run_id)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
