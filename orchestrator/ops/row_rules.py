"""Rules that one SQL statement can check: history, leases, waits, timers, fences, families."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from django.db import connection

from orchestrator.conf import engine_settings
from orchestrator.ops.effect_rules import EFFECT_SQL
from orchestrator.ops.violation import Violation

# Each returns (run, step, what is wrong) for the runs in %(runs)s.
_OVER = "('completed', 'failed', 'cancelled', 'timed_out')"
_STEP_OVER = "('completed', 'failed', 'skipped', 'timed_out', 'cancelled', 'compensated')"
_NAME = "s.key || s.scope"

_HISTORY_GAPLESS = """
SELECT r.id, '', format('%%s events up to %%s, next_seq is %%s', e.n, e.last, r.next_seq)
  FROM orchestrator_run r CROSS JOIN LATERAL (
    SELECT count(*) AS n, coalesce(max(seq), 0) AS last, coalesce(min(seq), 1) AS first
      FROM orchestrator_event WHERE run_id = r.id) e
 WHERE r.id = ANY(%(runs)s) AND (e.first <> 1 OR e.n <> e.last OR e.last + 1 <> r.next_seq)
"""
# What a person finds out about an effect of a run that is over, or settles by hand, is noted behind
# its end; and a run may be undone after its end, to which it comes back.
_LAST_WORD = f"""
SELECT r.id, '', format('the run is %%s, its last event is %%s', r.state, e.type)
  FROM orchestrator_run r LEFT JOIN LATERAL (
    SELECT CASE WHEN type = 'compensation.finished' THEN 'run.' || (payload ->> 'state')
           ELSE type END AS type
      FROM orchestrator_event
     WHERE run_id = r.id AND type NOT IN ('repair.settle_effect', 'repair.settle_by_hand')
     ORDER BY seq DESC LIMIT 1) e ON true
 WHERE r.id = ANY(%(runs)s)
   AND (r.state IN {_OVER}) <> (coalesce(e.type, '') IN (
     'run.completed', 'run.failed', 'run.cancelled', 'run.timed_out'))
"""  # noqa: S608 - constant lists
_CLOSED = f"""
SELECT r.id, {_NAME}, format('the run is %%s, the step %%s', r.state, s.state)
  FROM orchestrator_run r JOIN orchestrator_step s ON s.run_id = r.id
 WHERE r.id = ANY(%(runs)s) AND r.state IN {_OVER}
   AND (s.state NOT IN {_STEP_OVER} OR s.lease_until IS NOT NULL)
UNION ALL
SELECT r.id, coalesce({_NAME}, ''), format('the run is %%s, a %%s timer is left', r.state, t.kind)
  FROM orchestrator_run r JOIN orchestrator_timer t ON t.run_id = r.id
  LEFT JOIN orchestrator_step s ON s.id = t.step_id
 WHERE r.id = ANY(%(runs)s) AND r.state IN {_OVER}
"""  # noqa: S608 - constant lists
_RUNNING_LEASED = f"""
SELECT s.run_id, {_NAME}, CASE WHEN s.state = 'running' THEN 'running without a lease or items'
       ELSE format('a lease, but the step is %%s', s.state) END
  FROM orchestrator_step s
 WHERE s.run_id = ANY(%(runs)s)
   AND CASE WHEN s.state = 'running' THEN s.lease_until IS NULL AND NOT EXISTS (
              SELECT 1 FROM orchestrator_step i
               WHERE i.run_id = s.run_id AND i.key = s.key AND i.index IS NOT NULL
                 AND s.items_total IS NOT NULL AND s.scope = '')
            ELSE s.lease_until IS NOT NULL END
"""  # noqa: S608 - constant lists


def waiting_for_nothing(step: str) -> str:
    """The condition, on the waiting step under the alias ``step``, that nothing will end its wait.

    A wait for a service or a budget ends by a sweep of its own, which needs no row.
    """
    s = step
    return f"""CASE {s}.waiting_for
         WHEN 'timer' THEN NOT EXISTS (
           SELECT 1 FROM orchestrator_timer t WHERE t.step_id = {s}.id)
         WHEN 'child' THEN NOT EXISTS (
             SELECT 1 FROM orchestrator_run c
              WHERE c.parent_id = {s}.run_id AND c.parent_step = {s}.id AND c.state NOT IN {_OVER})
           AND NOT EXISTS (
             SELECT 1 FROM orchestrator_outbox o WHERE o.topic = 'child.ended'
                AND o.payload ->> 'parent_step' = {s}.id::text)
           AND NOT EXISTS (
             SELECT 1 FROM orchestrator_step u WHERE {s}.type = 'undo_child'
                AND u.run_id = {s}.run_id AND 'undo:' || u.key = {s}.key AND (EXISTS (
                  SELECT 1 FROM orchestrator_run c WHERE c.parent_id = {s}.run_id
                     AND c.parent_step = u.id AND c.state NOT IN {_OVER})
                OR EXISTS (
                  SELECT 1 FROM orchestrator_outbox o WHERE (o.run_id = {s}.run_id
                     AND o.topic IN ('child.undo', 'child.undone'))
                     OR (o.topic = 'child.ended'
                     AND o.payload ->> 'parent_step' = u.id::text))))
         WHEN 'review' THEN NOT EXISTS (
           SELECT 1 FROM orchestrator_effect e
            WHERE e.step_id = {s}.id AND e.status IN ('intended', 'in_doubt'))
         WHEN 'signal' THEN {s}.waiting_key = ''
         WHEN 'person' THEN {s}.waiting_key = '' AND NOT EXISTS (
           SELECT 1 FROM orchestrator_timer t WHERE t.step_id = {s}.id)
         WHEN 'service' THEN false
         WHEN 'budget' THEN false
         ELSE true
       END"""  # noqa: S608 - constant text


_WAITING_FOR_SOMETHING = f"""
SELECT s.run_id, {_NAME}, format('waiting for %%L, but nothing will end it', s.waiting_for)
  FROM orchestrator_step s
 WHERE s.run_id = ANY(%(runs)s) AND s.state = 'waiting' AND {waiting_for_nothing("s")}
"""  # noqa: S608 - constant lists
_RETRYING_TIMED = f"""
SELECT s.run_id, {_NAME}, 'retrying without a timer' FROM orchestrator_step s
 WHERE s.run_id = ANY(%(runs)s) AND s.state = 'retrying'
   AND NOT EXISTS (
     SELECT 1 FROM orchestrator_timer t WHERE t.step_id = s.id AND t.kind = 'retry')
"""  # noqa: S608 - constant lists
_TIMED_WAITS = f"""
SELECT t.run_id, {_NAME}, format('a %%s timer, but the step is %%s', t.kind, s.state)
  FROM orchestrator_timer t JOIN orchestrator_step s ON s.id = t.step_id
 WHERE t.run_id = ANY(%(runs)s)
   AND s.state <> CASE t.kind WHEN 'retry' THEN 'retrying' ELSE 'waiting' END
"""  # noqa: S608 - constant lists
_FENCES = f"""
SELECT run_id, step, words FROM (
  SELECT s.run_id, {_NAME} AS step, a.fence, s.fence AS now,
         format('attempt %%s has fence %%s, after %%s and before %%s', a.number, a.fence,
                lag(a.fence) OVER w, s.fence) AS words,
         lag(a.fence) OVER w AS before
    FROM orchestrator_attempt a JOIN orchestrator_step s ON s.id = a.step_id
   WHERE s.run_id = ANY(%(runs)s) AND a.outcome <> 'late'
  WINDOW w AS (PARTITION BY s.id ORDER BY a.id)) x
 WHERE fence > now OR fence <= before
"""  # noqa: S608 - constant lists
_FAMILY = """
SELECT c.id, '', format('tenant %%L, its parent %%L', c.tenant, p.tenant)
  FROM orchestrator_run c JOIN orchestrator_run p ON p.id = c.parent_id
 WHERE c.id = ANY(%(runs)s) AND (c.tenant <> p.tenant OR c.depth <> p.depth + 1)
"""
_ONE_START = """
SELECT run_id, step, format('started again at %%s, nothing ended it since', seq) FROM (
  SELECT run_id, step, seq, type, lag(type) OVER (PARTITION BY run_id, step ORDER BY seq) AS before
    FROM orchestrator_event
   WHERE run_id = ANY(%(runs)s) AND step <> '' AND type IN (
     'step.started', 'step.completed', 'step.failed', 'step.skipped', 'step.timed_out',
     'step.cancelled', 'step.retry_scheduled', 'step.waiting', 'step.repeated', 'step.ready')) x
 WHERE type = 'step.started'
   AND before IN ('step.started', 'step.waiting', 'step.retry_scheduled', 'step.repeated')
"""
_NOT_LOST = """
SELECT r.id, '', format('the run is %%s, but nothing of it moves or waits', r.state)
  FROM orchestrator_run r
 WHERE r.id = ANY(%(runs)s) AND r.state IN ('pending', 'running', 'waiting', 'compensating')
   AND NOT EXISTS (
     SELECT 1 FROM orchestrator_step s WHERE s.run_id = r.id
        AND s.state = ANY(CASE r.state
          WHEN 'waiting' THEN ARRAY['waiting']
          WHEN 'compensating' THEN ARRAY['ready', 'running', 'retrying', 'waiting']
          ELSE ARRAY['ready', 'running', 'retrying'] END))
"""
_OLD_MESSAGES = """
SELECT run_id, '', format('%%s waits since %%s (%%s attempts) %%s', topic, due_at, attempts, error)
  FROM orchestrator_outbox WHERE due_at < orchestrator_now() - interval '2 minutes'
 ORDER BY due_at LIMIT %(limit)s
"""


def _find(rule: str, sql: str, runs: Sequence[UUID]) -> list[Violation]:
    # Of older runs receipts may have been forgotten: see engine/forgetting.py.
    return _violations(rule, sql, {"runs": list(runs), "keep": engine_settings().effect_retention})


def _violations(rule: str, sql: str, params: dict[str, Any]) -> list[Violation]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return [Violation(rule, *row) for row in cursor.fetchall()]


def old_messages(limit: int) -> list[Violation]:
    """Outbox messages that have been due for two minutes; a sweep takes them each second."""
    return _violations("outbox_age", _OLD_MESSAGES, {"limit": limit})


_SQL: tuple[tuple[str, str, str], ...] = (
    ("history_gapless", "history is 1..n without gaps, and n + 1 is next_seq", _HISTORY_GAPLESS),
    ("last_word", "a run that is over ends its history with its end, no other does", _LAST_WORD),
    ("terminal_closed", "a run that is over has no open step, timer or lease", _CLOSED),
    (
        "running_leased",
        "what runs holds a lease or has items at work, nothing else",
        _RUNNING_LEASED,
    ),
    ("waiting_reason", "what waits has something that will end it", _WAITING_FOR_SOMETHING),
    ("retrying_timed", "what will be retried has a timer", _RETRYING_TIMED),
    ("timers_awaited", "every timer has a step that waits for it", _TIMED_WAITS),
    ("fences_grow", "fences grow from attempt to attempt", _FENCES),
    ("family_tenant", "a child has its parent's tenant and stands one deeper", _FAMILY),
    ("one_start", "no step starts twice without having been made ready between", _ONE_START),
    ("in_flight", "an open run has something that moves or waits", _NOT_LOST),
)
ROW_RULES: dict[str, tuple[str, Callable[[Sequence[UUID]], Iterable[Violation]]]] = {
    rule: (words, partial(_find, rule, sql)) for rule, words, sql in (*_SQL, *EFFECT_SQL)
}
