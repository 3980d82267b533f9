"""Dead letters: retried, each by a repair of its own, or settled by hand outside the run."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

from django.db.models import QuerySet

from orchestrator.core.errors import InvalidRequest, NotFound, OrchestratorError, StateConflict
from orchestrator.core.undo_steps import UNDO
from orchestrator.crash import Unit
from orchestrator.engine.repair import repair_run
from orchestrator.models import DeadLetter, attempts, moves, repair_rows, rows

SETTLE = "settle_by_hand"


def open_letters(letters: QuerySet[DeadLetter]) -> QuerySet[DeadLetter]:
    """Those whose step neither runs again nor was settled by hand."""
    return letters.filter(retried_at__isnull=True, settled_at__isnull=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried:
    """What became of one dead letter: ``retried``, or ``refused`` with code and reason."""

    letter: DeadLetter
    status: Literal["retried", "refused"]
    code: str = ""
    detail: str = ""


def retry_letter(
    letter: DeadLetter,
    *,
    reason: str,
    actor: str,
    role: str,
    token: str,
    expected_version: int,
) -> Retried:
    """Run its step again, or undo again what it failed to undo; one that is refused stays open.

    A step that another repair has meanwhile set to run again counts as retried. ``letter`` may be
    as old as ``expected_version``, the run's state version. Opens or joins a transaction.
    """
    now = DeadLetter.objects.only("retried_at", "settled_at").get(pk=letter.pk)
    if now.retried_at is not None:
        detail = "it runs again together with another step of its run"
        return Retried(letter=letter, status="retried", detail=detail)
    if now.settled_at is not None:
        detail = "somebody has settled it by hand"
        return Retried(letter=letter, status="refused", code="letter_closed", detail=detail)
    # Of a compensation what it undoes is named, as a whole: items that were undone are left out.
    undo = letter.step.key.startswith(UNDO)
    try:
        repair_run(
            letter.run_id,
            action="compensate_step" if undo else "retry_step",
            step=letter.step.key.removeprefix(UNDO),
            scope="" if undo else letter.step.scope,
            reason=reason,
            actor=actor,
            role=role,
            token=token,
            expected_version=expected_version,
        )
    except OrchestratorError as refusal:
        return Retried(letter=letter, status="refused", code=refusal.code, detail=str(refusal))
    return Retried(letter=letter, status="retried")


def settle_letter(
    letter_id: int, *, tenant: str, reason: str, actor: str, role: str, token: str
) -> bool:
    """Close a dead letter: a person has done what it asked for, or nothing is to be done.

    Nothing about the run or its effects changes but its history. The same token again does nothing
    (False). Raises NotFound, StateConflict (``letter_closed``), InvalidRequest. Opens or joins a
    transaction.
    """
    with Unit("settle_letter"):
        found = DeadLetter.objects.filter(pk=letter_id, tenant=tenant).select_related("step")
        letter = found.first()
        run = rows.lock_run(letter.run_id) if letter is not None else None
        if letter is None or run is None:
            raise NotFound(f"there is no dead letter {letter_id}")
        asked = f"{SETTLE}\n{letter_id}\n{reason}"
        fingerprint = hashlib.sha256(asked.encode()).hexdigest()
        if _is_repeated(letter, token, fingerprint):
            return False
        if not attempts.settle_letter(letter_id, actor=actor, reason=reason):
            raise StateConflict(
                f"dead letter {letter_id} is closed: its step runs again, or somebody settled it",
                state="closed",
                code="letter_closed",
            )
        payload = {"step": str(letter.step), "of": letter.reason, "reason": reason[:500]}
        moves.append_event(run.id, f"repair.{SETTLE}", payload | {"role": role}, actor)
        repair_rows.store_repair(
            {
                "run_id": run.id,
                "token": token,
                "fingerprint": fingerprint,
                "action": SETTLE,
                "step": letter.step.key,
                "scope": letter.step.scope,
                "reason": reason,
                "actor": actor,
                "role": role,
                "expected_version": None,
                "result": {"letter": letter_id},
            }
        )
    return True


def _is_repeated(letter: DeadLetter, token: str, fingerprint: str) -> bool:
    earlier = repair_rows.find_repair(letter.run_id, token)
    if earlier is None:
        return False
    if earlier[0] != fingerprint:
        raise InvalidRequest(
            "this Idempotency-Key was used for another repair of the run: use a new one",
            code="idempotency_key_reused",
        )
    return True
