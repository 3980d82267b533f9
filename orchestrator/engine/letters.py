"""Dead letters that a person settles by hand: outside the run, with a reason, audited."""

from __future__ import annotations

import hashlib

from orchestrator.core.errors import InvalidRequest, NotFound, StateConflict
from orchestrator.crash import Unit
from orchestrator.models import DeadLetter, attempts, moves, repair_rows, rows

SETTLE = "settle_by_hand"


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
