"""Holds and quotas: what an operator keeps from starting, or from starting too many at once."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NoReturn

from django.db import transaction

from orchestrator.core.errors import InvalidRequest, StateConflict
from orchestrator.core.gates import GLOBAL, SCOPES, gate_key
from orchestrator.crash import Unit
from orchestrator.engine.gates import cache
from orchestrator.models import gate_rows, hold_rows

BOOT_ACTOR = "system:boot"
QUOTA_SCOPES = ("tenant", "queue", "service")
MAX_TEXT = 2000
MAX_NAME = 255


def hold(scope: str, name: str, *, reason: str, actor: str, until: datetime | None = None) -> None:
    """Keep work of a service, model, tenant, queue (or, ``global``, all work) from starting.

    What runs finishes; what would start waits until ``until`` or until it is released. Joins or
    opens a transaction. Raises InvalidRequest, StateConflict (held already).
    """
    _check(scope, name, reason)
    with Unit("hold"):
        if until is not None and not hold_rows.is_future(_in_utc(until)):
            _refuse("until", "until_past", "is in the past: give an instant to come")
        made = hold_rows.insert_hold(scope, name, reason=reason, actor=actor, until=until)
        if made is None:
            raise StateConflict(f"{_named(scope, name)} is held already", state="held")
        why = f"{_named(scope, name)} is held by {actor}: {reason}"
        gate_rows.put_gate(
            gate_key(scope, name), "hold", allows=0, why=why, look_at=until, expires_at=until
        )
        transaction.on_commit(cache.forget)


def release_hold(scope: str, name: str, *, reason: str, actor: str) -> None:
    """Let go what was held: what waits starts in turns. Joins or opens a transaction.

    Raises InvalidRequest, StateConflict (not held).
    """
    _check(scope, name, reason)
    with Unit("release_hold"):
        over = hold_rows.release_hold(scope, name, reason=reason, actor=actor)
        if over is None:
            raise StateConflict(f"{_named(scope, name)} is not held", state="not held")
        gate_rows.drop_gate(gate_key(scope, name), "hold")
        transaction.on_commit(cache.forget)


def hold_at_boot(*, reason: str) -> bool:
    """Hold everything before the first worker starts; False when it is held already."""
    try:
        hold(GLOBAL, "", reason=reason, actor=BOOT_ACTOR)
    except StateConflict:
        return False
    return True


def set_quota(scope: str, name: str, *, max_in_flight: int, reason: str, actor: str) -> None:
    """At most so many steps of a tenant, queue or service are at work at once.

    Joins or opens a transaction. Raises InvalidRequest.
    """
    if scope not in QUOTA_SCOPES:
        _refuse("scope", "unknown_scope", f"use one of {', '.join(QUOTA_SCOPES)}")
    _check(scope, name, reason)
    if not 1 <= max_in_flight <= 1_000_000:
        _refuse("max_in_flight", "out_of_range", "use 1 to 1000000; to allow none, hold it")
    with Unit("set_quota"):
        hold_rows.put_quota(scope, name, max_in_flight=max_in_flight, reason=reason, actor=actor)
        why = f"{_named(scope, name)} may have {max_in_flight} steps at work at once"
        gate_rows.put_gate(gate_key(scope, name), "quota", allows=max_in_flight, why=why)
        transaction.on_commit(cache.forget)


def drop_quota(scope: str, name: str) -> None:
    """The bound is gone. Joins or opens a transaction. Raises StateConflict (there is none)."""
    with Unit("drop_quota"):
        if not hold_rows.drop_quota(scope, name):
            raise StateConflict(f"{_named(scope, name)} has no quota", state="no quota")
        gate_rows.drop_gate(gate_key(scope, name), "quota")
        transaction.on_commit(cache.forget)


def end_holds() -> int:
    """A sweep: holds and spent budgets whose time is over are taken away; how many."""
    if not gate_rows.any_gate():
        return 0
    with Unit("end_holds"):
        ended = hold_rows.end_holds()
        gone = gate_rows.drop_expired()
    if ended or gone:
        cache.forget()
    return max(len(ended), gone)


def _in_utc(until: datetime) -> datetime:
    try:
        return until.astimezone(UTC)
    except OverflowError:
        _refuse("until", "until_too_late", "lies outside the years 1 to 9999")


def _named(scope: str, name: str) -> str:
    return "everything" if scope == GLOBAL else f"{scope} {name}"


def _check(scope: str, name: str, reason: str) -> None:
    if scope not in SCOPES:
        _refuse("scope", "unknown_scope", f"use one of {', '.join(SCOPES)}")
    if scope == GLOBAL and name:
        _refuse("name", "name_not_wanted", "global holds everything: leave the name out")
    if scope != GLOBAL and not name.strip():
        _refuse("name", "name_missing", f"name the {scope}")
    if len(name) > MAX_NAME or not name.isprintable():
        _refuse("name", "bad_name", f"at most {MAX_NAME} printable characters")
    if not 0 < len(reason.strip()) <= MAX_TEXT or "\x00" in reason:
        _refuse("reason", "reason_missing", f"say why, in 1 to {MAX_TEXT} characters")


def _refuse(field: str, code: str, words: str) -> NoReturn:
    problem = {"pointer": f"/{field}", "code": code, "detail": words}
    raise InvalidRequest(f"{field}: {words}", code=code, problems=[problem])
