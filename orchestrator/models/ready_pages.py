"""READY steps of one queue, a page at a time by how long they have been there.

They may be very many: a sweep that looked at all of them each time would take the longer, the more
there is to do. A process remembers where its last page ended and goes on from there, round and
round; as long as one page holds them all, it sees all of them each time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from orchestrator.models.statements import fetch_all_prepared

PAGE = 1_000
_SINCE = "coalesce(s.dispatched_at, s.ready_at)"
# One probe of the index for each queue, however many steps it has.
_QUEUES = (
    "WITH RECURSIVE q AS ("
    " (SELECT queue FROM orchestrator_step WHERE state = 'ready' ORDER BY queue LIMIT 1)"
    " UNION ALL SELECT (SELECT s.queue FROM orchestrator_step s WHERE s.state = 'ready'"
    "   AND s.queue > q.queue ORDER BY s.queue LIMIT 1) FROM q WHERE q.queue IS NOT NULL)"
    " SELECT queue FROM q WHERE queue IS NOT NULL"
)
_PAGE_OF = (
    "SELECT s.id, s.run_id, s.position, s.index, s.queue, s.ready_at, s.dispatched_at,"  # noqa: S608 - constant text
    f" s.n_dispatched, s.n_retries, s.gates, s.passed, {_SINCE} AS since FROM orchestrator_step s"
    " WHERE s.state = 'ready' AND s.queue = %s"
    f" AND ({_SINCE}, s.id) > (%s::timestamptz, %s::uuid)"
    f" AND {_SINCE} < orchestrator_now() - make_interval(secs => %s)"
    f" ORDER BY {_SINCE}, s.id LIMIT %s"
)
_GOES_ON = "r.state IN ('pending', 'running', 'compensating')"
# On an empty queue every message older than the bound is taken for lost. While the queue is long a
# message may just be waiting its turn: 15 s, doubled with every message sent, at most a minute
# (DESIGN section 4). Work without a message waits for a place as long as others of its run are on
# their way or at work: their settle sends for it.
_STALE = (
    f"WITH p AS MATERIALIZED ({_PAGE_OF})"  # noqa: S608 - constant text
    " SELECT p.id, p.since::text, p.run_id, p.position, p.index, p.queue,"
    f" {_GOES_ON} AND p.since < orchestrator_now() - make_interval(secs => CASE WHEN %s THEN 0"
    "   ELSE least(15 * power(2, greatest(least(p.n_dispatched, 3) - 1, 0)), 60) END)"
    " AND (p.dispatched_at IS NOT NULL OR NOT EXISTS ("
    "   SELECT 1 FROM orchestrator_step o WHERE o.run_id = p.run_id AND ("
    "     (o.state = 'running' AND o.lease_until IS NOT NULL)"
    "     OR (o.state = 'ready' AND o.dispatched_at IS NOT NULL))))"
    " FROM p JOIN orchestrator_run r ON r.id = p.run_id ORDER BY p.since, p.id"
)
_SHUT = (
    f"WITH p AS MATERIALIZED ({_PAGE_OF})"  # noqa: S608 - constant text
    f" SELECT p.id, p.since::text, p.run_id, p.position, p.index, p.queue, {_GOES_ON} AND EXISTS ("
    "   SELECT 1 FROM orchestrator_gate g WHERE g.allows = 0 AND g.key <> p.passed"
    "    AND (g.expires_at IS NULL OR g.expires_at > orchestrator_now())"
    "    AND (g.key = ANY(p.gates || ARRAY['global', 'tenant:' || r.tenant, 'queue:' || p.queue])"
    "      OR (p.n_retries > 0 AND g.source = 'retries'"
    "        AND 'service:' || substr(g.key, 9) = ANY(p.gates))))"
    " FROM p JOIN orchestrator_run r ON r.id = p.run_id ORDER BY p.since, p.id"
)
_START = ("-infinity", UUID(int=0))
Place = tuple[str, UUID]


@dataclass(frozen=True, slots=True)
class ReadyStep:
    """READY work that a sweep looks for."""

    step_id: UUID
    run_id: UUID
    position: int
    index: int | None
    queue: str


@dataclass(slots=True)
class Walk:
    """Where the pages of each queue have come to, in this process."""

    places: dict[str, Place] = field(default_factory=dict)

    def stale(self, queue: str, *, after_s: float, is_empty: bool) -> list[ReadyStep]:
        """Those of the next page whose message is taken for lost; ``is_empty``: so is the queue."""
        least_s = after_s if is_empty else 15.0
        return self._next(queue, lambda place, n: (_STALE, [*place, least_s, n, is_empty]))

    def before_shut(self, queue: str) -> list[ReadyStep]:
        """Those of the next page that stand before a gate that lets nothing through."""
        return self._next(queue, lambda place, n: (_SHUT, [*place, 0.0, n]))

    def _next(
        self, queue: str, ask: Callable[[Place, int], tuple[str, list[Any]]]
    ) -> list[ReadyStep]:
        place = self.places.get(queue, _START)
        rows = _page(queue, *ask(place, PAGE))
        if len(rows) < PAGE and place != _START:  # once around, at most up to where we began
            seen = {row[0] for row in rows}
            begin = _page(queue, *ask(_START, PAGE - len(rows)))
            rows += [row for row in begin if row[0] not in seen]
        self.places[queue] = (rows[-1][1], rows[-1][0]) if len(rows) >= PAGE else _START
        return [ReadyStep(row[0], *row[2:6]) for row in rows if row[6]]


def _page(queue: str, sql: str, params: Sequence[Any]) -> list[tuple[Any, ...]]:
    return fetch_all_prepared(sql, [queue, *params])


def queues_with_ready() -> list[str]:
    """The queues that READY work belongs to."""
    return [queue for (queue,) in fetch_all_prepared(_QUEUES, [])]


def in_turns(found: Sequence[ReadyStep], limit: int) -> list[ReadyStep]:
    """The first ``limit``, in turns between runs: a wide one does not keep another's lost message
    from being sent again."""
    turns: dict[UUID, int] = {}
    order = []
    for place, one in enumerate(found):
        turns[one.run_id] = turns.get(one.run_id, 0) + 1
        order.append((turns[one.run_id], place, one))
    return [one for _, _, one in sorted(order, key=lambda row: row[:2])[:limit]]
