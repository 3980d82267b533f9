"""Rules about effects, answers that came, money and tenants; SQL as in ``row_rules``."""

from __future__ import annotations

# I2 of the reliability rules: no receipt without an intent before it, and both halves of the row.
# Who takes over the doubt of another run has no intent in its own history; the row tells of it.
RECEIPT_INTENDED = """
SELECT e.run_id, s.key || s.scope, format('effect %%L is %%s, but its receipt says otherwise',
       e.idempotency_key, e.status)
  FROM orchestrator_effect e JOIN orchestrator_step s ON s.id = e.step_id
 WHERE e.run_id = ANY(%(runs)s)
   AND (CASE e.status WHEN 'applied' THEN e.settled_at IS NULL OR e.response_hash = ''
             WHEN 'intended' THEN e.settled_at IS NOT NULL
             WHEN 'in_doubt' THEN e.settled_at IS NOT NULL ELSE false END)
UNION ALL
SELECT x.run_id, x.step, format('effect %%L: a receipt at %%s without an intent before it', x.key,
       x.receipt)
  FROM (SELECT run_id, min(step) AS step, payload ->> 'key' AS key,
               min(seq) FILTER (WHERE type = 'effect.intended') AS intent,
               min(seq) FILTER (WHERE type = 'effect.receipt') AS receipt,
               min(at) FILTER (WHERE type = 'effect.receipt') AS receipt_at
          FROM orchestrator_event
         WHERE run_id = ANY(%(runs)s) AND type IN ('effect.intended', 'effect.receipt')
         GROUP BY run_id, payload ->> 'key') x
  JOIN orchestrator_run r ON r.id = x.run_id
  LEFT JOIN orchestrator_effect e ON e.tenant = r.tenant AND e.idempotency_key = x.key
 WHERE x.receipt IS NOT NULL
   AND NOT coalesce(x.intent < x.receipt, e.intended_at < x.receipt_at, false)
   AND NOT coalesce(r.finished_at < orchestrator_now() - %(keep)s::interval, false)
"""
# I3: a key has one receipt, and it is this run's: two runs with a receipt for one key would both
# have it in their history, but the row can name one of them only.
EFFECT_ONCE = """
SELECT v.run_id, v.step, format('effect %%L: %%s receipts here, its row is %%s of run %%s',
       v.key, v.n, coalesce(e.status, 'missing'), coalesce(e.run_id::text, '-'))
  FROM (SELECT run_id, min(step) AS step, payload ->> 'key' AS key, count(*) AS n
          FROM orchestrator_event
         WHERE run_id = ANY(%(runs)s) AND type = 'effect.receipt'
         GROUP BY run_id, payload ->> 'key') v
  JOIN orchestrator_run r ON r.id = v.run_id
  LEFT JOIN orchestrator_effect e ON e.tenant = r.tenant AND e.idempotency_key = v.key
 WHERE (v.n > 1 OR e.run_id IS DISTINCT FROM v.run_id OR e.status <> 'applied')
   AND NOT coalesce(r.finished_at < orchestrator_now() - %(keep)s::interval, false)
"""
# I10: what came for a waiter reaches it.
ANSWERS_TAKEN = """
SELECT s.run_id, s.key || s.scope, format('waits for %%L, which came at %%s', g.name, g.received_at)
  FROM orchestrator_step s
  JOIN orchestrator_signal g ON g.run_id = s.run_id AND g.name = s.waiting_key
   AND g.consumed_by IS NULL AND (s.waiting_for = 'signal' OR g.scope = s.scope)
 WHERE s.run_id = ANY(%(runs)s) AND s.state = 'waiting' AND s.waiting_for IN ('signal', 'person')
"""
COSTS_ADD_UP = """
SELECT r.id, '', format('the run counts %%s micro-dollars and %%s tokens, its steps %%s and %%s',
       r.cost_microusd, r.tokens_in + r.tokens_out, x.cost, x.tokens)
  FROM orchestrator_run r CROSS JOIN LATERAL (
    SELECT coalesce(sum(s.cost_microusd), 0) AS cost,
           coalesce(sum(s.tokens_in + s.tokens_out), 0) AS tokens
      FROM orchestrator_step s WHERE s.run_id = r.id) x
 WHERE r.id = ANY(%(runs)s) AND (r.tokens_in + r.tokens_out <> x.tokens
   OR (NOT r.cost_unknown AND r.cost_microusd <> x.cost))
"""
# Conversations with models: what the history tells is what is kept, and what it cost.
TURNS_TOLD = """
SELECT v.run_id, '', format('the history tells of %%s turns with models, %%s are kept',
       v.told, v.kept)
  FROM (SELECT x.run_id, sum(x.told) AS told, sum(x.kept) AS kept FROM (
    SELECT run_id, count(*) AS told, 0 AS kept FROM orchestrator_event
     WHERE run_id = ANY(%(runs)s) AND type IN ('call.answered', 'call.used', 'call.refused')
     GROUP BY run_id
     UNION ALL SELECT run_id, 0, count(*) FROM orchestrator_turn
     WHERE run_id = ANY(%(runs)s) GROUP BY run_id) x GROUP BY x.run_id) v
 WHERE v.told <> v.kept
"""
TURNS_PAID = """
SELECT s.run_id, s.key || s.scope, format('counts %%s micro-dollars, its turns %%s',
       s.cost_microusd, x.cost)
  FROM orchestrator_step s JOIN LATERAL (
    SELECT sum(t.cost_microusd) AS cost, sum(t.tokens_in + t.tokens_out) AS tokens,
           bool_or(t.cost_microusd IS NULL) AS unknown
      FROM orchestrator_turn t WHERE t.step_id = s.id) x ON x.tokens IS NOT NULL
 WHERE s.run_id = ANY(%(runs)s) AND (s.tokens_in + s.tokens_out <> x.tokens
   OR (NOT x.unknown AND s.cost_microusd IS DISTINCT FROM x.cost))
"""
# I13, beside families: whatever carries a tenant of its own has that of its run.
ONE_TENANT = """
SELECT r.id, '', format('the run is of tenant %%L, its %%s of %%L', r.tenant, x.what, x.tenant)
  FROM orchestrator_run r CROSS JOIN LATERAL (
    SELECT 'effect' AS what, tenant FROM orchestrator_effect WHERE run_id = r.id
     UNION ALL SELECT 'turn', tenant FROM orchestrator_turn WHERE run_id = r.id
     UNION ALL SELECT 'dead letter', tenant FROM orchestrator_deadletter WHERE run_id = r.id
     UNION ALL SELECT 'blueprint', tenant FROM orchestrator_blueprint WHERE id = r.blueprint_id) x
 WHERE r.id = ANY(%(runs)s) AND x.tenant <> r.tenant
"""

EFFECT_SQL: tuple[tuple[str, str, str], ...] = (
    ("receipt_intended", "no receipt without an intent before it", RECEIPT_INTENDED),
    ("effect_once", "an effect key has one receipt, and it is this run's", EFFECT_ONCE),
    ("answers_taken", "no step waits for an answer that has come", ANSWERS_TAKEN),
    ("costs_add_up", "a run's cost and tokens are the sum of its steps'", COSTS_ADD_UP),
    ("turns_told", "each turn with a model stands in the history, and is kept", TURNS_TOLD),
    ("turns_paid", "a step's cost and tokens are those of its turns with models", TURNS_PAID),
    ("one_tenant", "effects, letters and blueprint have the tenant of the run", ONE_TENANT),
)
