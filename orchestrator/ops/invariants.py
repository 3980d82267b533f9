"""What must be true of every stored run; ``manage.py verify`` and the tests ask.

Each batch of runs is read in one snapshot of the database, so that a run on the move is seen whole.
Reading only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

from django.db import connection, transaction

from orchestrator.models import Run
from orchestrator.ops.compact_rules import compact_differences, early_starts
from orchestrator.ops.row_rules import ROW_RULES, old_messages
from orchestrator.ops.violation import Violation

BATCH = 200
MAX_NAMED = 100
"""Violations of one rule that are named; a broken rule is usually broken many times."""

Find = Callable[[Sequence[UUID]], Iterable[Violation]]

RULES: dict[str, tuple[str, Find]] = {
    **ROW_RULES,
    "compact_state": ("the compact state is what the rows say", compact_differences),
    "needs_first": ("no step started before its needs were settled", early_starts),
}
OUTBOX = "outbox_age"
OUTBOX_WORDS = "no message waits in the outbox for minutes"


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule after a look: how many runs were looked at, and what broke it."""

    rule: str
    words: str
    n_runs: int
    violations: list[Violation]


def check_runs(run_ids: Iterable[UUID]) -> list[Finding]:
    """Check these runs against every rule, in batches; then the outbox."""
    found: dict[str, list[Violation]] = {rule: [] for rule in RULES}
    n_runs = 0
    for batch in _batches(run_ids):
        n_runs += len(batch)
        with _one_snapshot():
            for rule, (_, find) in RULES.items():
                room = MAX_NAMED - len(found[rule])
                found[rule] += list(find(batch))[:room]
    findings = [Finding(rule, RULES[rule][0], n_runs, broken) for rule, broken in found.items()]
    return [*findings, Finding(OUTBOX, OUTBOX_WORDS, n_runs, list(old_messages(MAX_NAMED)))]


def newest_runs(limit: int) -> list[UUID]:
    """The ids of the newest runs of all tenants."""
    return list(Run.objects.order_by("-id").values_list("id", flat=True)[:limit])


def _batches(run_ids: Iterable[UUID]) -> Iterator[list[UUID]]:
    batch: list[UUID] = []
    for run_id in run_ids:
        batch.append(run_id)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


@contextmanager
def _one_snapshot() -> Iterator[None]:
    """All reads see the same instant. Inside a caller's transaction, whatever that one sees."""
    joined = connection.in_atomic_block
    with transaction.atomic():
        if not joined:
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield
