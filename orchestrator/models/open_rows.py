"""What the runs that are open need of a build, by blueprint."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import connection


@dataclass(frozen=True, slots=True)
class OpenRuns:
    """The open runs of one blueprint: how many, one compact state of each format, and by which
    versions of the decisions they began."""

    n_runs: int
    one_of_each_format: list[bytes]
    decisions: list[int]


NONE = OpenRuns(0, [], [])

_OPEN = "('compensating', 'paused', 'pending', 'running', 'waiting')"


def open_runs() -> dict[int, OpenRuns]:
    """By blueprint; reads the open runs and the first line of each history."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT r.blueprint_id, get_byte(r.compact, 0), count(*), min(r.compact),"  # noqa: S608 - constant text
            " array_remove(array_agg(DISTINCT (e.payload ->> 'decisions')::int), NULL)"
            " FROM orchestrator_run r LEFT JOIN orchestrator_event e"
            "  ON e.run_id = r.id AND e.seq = 1"
            f" WHERE r.state IN {_OPEN} GROUP BY 1, 2 ORDER BY 1, 2"
        )
        rows = cursor.fetchall()
    found: dict[int, OpenRuns] = {}
    for blueprint_id, _, n_runs, compact, decisions in rows:
        known = found.get(blueprint_id, NONE)
        found[blueprint_id] = OpenRuns(
            known.n_runs + n_runs,
            [*known.one_of_each_format, bytes(compact)],
            sorted({*known.decisions, *decisions}),
        )
    return found
