"""What a start reads and writes of the desk's own, by hand-written SQL: one statement each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson
from django.db import DatabaseError

from orchestrator.models.direct import Call, DirectStatement
from orchestrator.models.statements import encoded, fetch_prepared
from workflows_app.errors import KeyInFlight


class KeyUsed(Exception):
    """The key has started a run already."""


@dataclass(frozen=True, slots=True)
class Version:
    """A version that may be started."""

    number: int
    blueprint_id: int


@dataclass(frozen=True, slots=True)
class Earlier:
    """A start that was accepted under the key before."""

    fingerprint: str
    run_id: UUID
    answer: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Found:
    """The earlier start under a key, and the version that a new one would run; None: there is
    none."""

    earlier: Earlier | None
    version: Version | None


_LOOK = """
SELECT k.fingerprint, k.run_id, k.answer, v.number, v.blueprint_id
  FROM (VALUES (1)) one(n)
  LEFT JOIN workflows_app_startkey k ON k.tenant = %s AND k.workflow = %s AND k.key = %s
  LEFT JOIN LATERAL (
      SELECT v.number, v.blueprint_id FROM workflows_app_workflowversion v
        JOIN workflows_app_workflow w ON w.id = v.workflow_id
       WHERE w.tenant_id = %s AND w.name = %s AND v.state = 'published'
         AND (CASE WHEN %s::int IS NULL THEN v.is_default ELSE v.number = %s::int END)
       LIMIT 1) v ON true
"""


def look(tenant: str, workflow: str, key: str, *, number: int | None) -> Found:
    """Both in one look. ``number`` None: the default version."""
    row = fetch_prepared(_LOOK, [tenant, workflow, key, tenant, workflow, number, number])
    if row is None:
        return Found(None, None)
    fingerprint, run_id, answer, found_number, blueprint_id = row
    return Found(
        None if run_id is None else Earlier(fingerprint, run_id, orjson.loads(answer)),
        None if found_number is None else Version(found_number, blueprint_id),
    )


_TAKE = DirectStatement(
    b"workflows_take_start_key",
    b"SELECT workflows_take_start_key($1, $2, $3, $4, $5, $6)",
    places=6,
    binary=frozenset(range(5)),
)


def taking(
    tenant: str, workflow: str, key: str, fingerprint: str, run_id: UUID, answer: dict[str, Any]
) -> Call:
    """The statement that takes the key for a run, to be sent together with the run's own."""
    words = [word.encode() for word in (tenant, workflow, key, fingerprint)]
    return _TAKE, [*words, run_id.bytes, encoded(answer)]


@contextmanager
def refusals(key: str) -> Iterator[None]:
    """What the statement refuses by a code: ``KeyInFlight`` or ``KeyUsed``."""
    try:
        yield
    except DatabaseError as error:
        match getattr(error.__cause__, "sqlstate", None):
            case "WF001":
                raise KeyInFlight(key) from None
            case "WF002":
                raise KeyUsed from None
            case _:
                raise


def take_lock(tenant: str, workflow: str, key: str) -> None:
    """Hold the key until this transaction ends; whoever comes meanwhile is told to wait.

    A statement of its own: the next one then sees what the holder before us committed.
    """
    row = fetch_prepared(
        "SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))",
        [f"start\x1f{tenant}\x1f{workflow}\x1f{key}"],
    )
    if not row or not row[0]:
        raise KeyInFlight(key)
