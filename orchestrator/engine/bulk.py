"""Many dead letters retried by one choice of an operator, in portions, one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from orchestrator.crash import Unit
from orchestrator.engine.letters import open_letters, retry_letter
from orchestrator.models import BulkRetry, DeadLetter, bulk_rows

MAX_BULK = 10_000
"""The most dead letters of one choice; whoever has more makes another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkProgress:
    """How far it is: of ``total`` so many were retried and refused, and so many are left."""

    total: int
    retried: int
    refused: int
    left: int


def start_bulk(
    bulk_id: UUID,
    letters: QuerySet[DeadLetter],
    *,
    chosen_by: Mapping[str, Any],
    reason: str,
    actor: str,
    role: str,
) -> bool:
    """Keep which open dead letters are to be retried, the oldest first, at most ``MAX_BULK``;
    nothing is retried yet. False: that id was kept before, and nothing is added.

    The version of each run is kept with it: a run that moves on before its turn is refused.
    """
    found = open_letters(letters).order_by("pk").values_list("pk", "run__version")
    with Unit("start_bulk"):
        return bulk_rows.store_bulk(
            bulk_id,
            chosen_by=dict(chosen_by),
            reason=reason,
            actor=actor,
            role=role,
            letters=list(found[:MAX_BULK]),
        )


def work_bulk(bulk: BulkRetry, *, actor: str, role: str, at_most: int) -> BulkProgress:
    """Retry the next ones, each in a transaction of its own, and say how far it is.

    ``actor`` is whoever goes on with it now, be it another than who chose. Several may call it at
    once, and any call may die: an item is handled once.
    """
    for _ in range(at_most):
        if not _work_one(bulk, actor, role):
            break
    return bulk_progress(bulk)


def bulk_progress(bulk: BulkRetry) -> BulkProgress:
    """How far it is."""
    counts = bulk_rows.count_items(bulk.pk)
    return BulkProgress(
        total=bulk.total,
        retried=counts.get("retried", 0),
        refused=counts.get("refused", 0),
        left=counts.get("", 0),
    )


def _work_one(bulk: BulkRetry, actor: str, role: str) -> bool:
    """Whether there was one."""
    with Unit("bulk_item"):
        taken = bulk_rows.take_item(bulk.pk)
        if taken is None:
            return False
        item, letter_id, version = taken
        done = retry_letter(
            DeadLetter.objects.select_related("step").get(pk=letter_id),
            reason=bulk.reason,
            actor=actor,
            role=role,
            token=f"{bulk.pk}#{letter_id}",
            expected_version=version,
        )
        bulk_rows.close_item(item, status=done.status, code=done.code, detail=done.detail)
    return True
