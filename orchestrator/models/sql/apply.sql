-- One decision, written in one statement: the run's move, the settled step, the steps made READY,
-- the step claimed next, the history. Guarded by the run's version and the step's state and fence;
-- any guard that does not hold RAISEs, so that it is all or nothing. Within: run first, then steps.
--
-- OR001  the run moved meanwhile (another worker, a pause, a cancel), or has ended
-- OR002  the step is no longer as expected (stale fence, another state)
-- OR004  the effect's key is not as it was when the claim was prepared: look again
--
-- p_subject {id, from, fence, to, [output], [error], [effect], [timer], ...}: the step that the fact
--           was about; effect {key, status, [response], ...} is the receipt, in the same transaction;
--           what leaves its wait leaves its timers, timer {[kind], [seconds], [at]} sets one
-- p_ready   [{id, key, scope, position, index, type, queue, queued}]: new rows, READY
-- p_claim   {id, fence, timeout_s, [input]} of a row, or with "new": true the row itself, RUNNING;
--           effect {key, hash, tool, take} is the intent, committed before the call
-- p_events  [[type, step, payload, actor], ...] in order
CREATE OR REPLACE FUNCTION orchestrator_apply(
    p_run uuid, p_version bigint, p_compact bytea, p_state text, p_waiting text,
    p_end jsonb, p_subject jsonb, p_ready jsonb, p_claim jsonb, p_events jsonb,
    p_worker text, p_lease interval
) RETURNS timestamptz LANGUAGE plpgsql AS $$
DECLARE
    t timestamptz := orchestrator_now();
    n int := jsonb_array_length(p_events);
    first_seq bigint;
    works boolean := p_state IN ('pending', 'running', 'compensating');
    ends boolean := p_state IN ('completed', 'failed', 'cancelled', 'timed_out');
BEGIN
    UPDATE orchestrator_run r SET
        version = r.version + 1,
        next_seq = r.next_seq + n,
        compact = p_compact,
        state = p_state,
        waiting_for = p_waiting,
        updated_at = t,
        started_at = CASE WHEN p_claim IS NULL THEN r.started_at ELSE coalesce(r.started_at, t) END,
        worked = CASE WHEN works OR r.working_since IS NULL THEN r.worked
                      ELSE r.worked + (t - r.working_since) END,
        working_since = CASE WHEN works THEN coalesce(r.working_since, t) END,
        deadline_at = CASE WHEN r.time_is_wall THEN r.deadline_at
                           WHEN NOT works THEN NULL
                           WHEN r.working_since IS NULL THEN t + (r.time_limit - r.worked)
                           ELSE r.deadline_at END,
        -- set beforehand in a run that is undone after its end: it ended when it ended
        finished_at = CASE WHEN ends THEN coalesce(r.finished_at, t) ELSE r.finished_at END,
        output = CASE WHEN p_end IS NULL THEN r.output ELSE p_end -> 'output' END,
        error = CASE WHEN p_end IS NULL THEN r.error ELSE nullif(p_end -> 'error', 'null') END,
        outcome = CASE WHEN p_end IS NULL THEN r.outcome ELSE p_end ->> 'outcome' END,
        warnings = CASE WHEN p_end IS NULL THEN r.warnings ELSE p_end -> 'warnings' END,
        compensation = CASE WHEN p_end IS NULL THEN r.compensation
                            ELSE coalesce(p_end ->> 'compensation', '') END,
        cost_microusd = r.cost_microusd + coalesce((p_subject ->> 'cost')::bigint, 0),
        cost_unknown = r.cost_unknown OR coalesce((p_subject ->> 'cost_unknown')::boolean, false),
        tokens_in = r.tokens_in + coalesce((p_subject ->> 'tokens_in')::bigint, 0),
        tokens_out = r.tokens_out + coalesce((p_subject ->> 'tokens_out')::bigint, 0)
    WHERE r.id = p_run AND r.version = p_version
      AND r.state NOT IN ('completed', 'failed', 'cancelled', 'timed_out')
    RETURNING r.next_seq - n INTO first_seq;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'run % is not at version %', p_run, p_version USING ERRCODE = 'OR001';
    END IF;

    IF p_subject IS NOT NULL THEN
        PERFORM orchestrator_move_step(p_run, p_subject, t);
    END IF;

    IF p_ready IS NOT NULL THEN
        PERFORM orchestrator_insert_ready(p_run, p_ready, t);
    END IF;

    IF p_claim IS NOT NULL THEN
        PERFORM orchestrator_claim_step(p_run, p_claim, t, p_worker, p_lease);
    END IF;

    PERFORM orchestrator_append(p_run, first_seq, p_events, t);
    RETURN t;
END
$$;

-- A list of texts; NULL for anything else.
CREATE OR REPLACE FUNCTION orchestrator_text_array(x jsonb) RETURNS text[]
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF x IS NULL OR jsonb_typeof(x) <> 'array' THEN
        RETURN NULL;
    END IF;
    RETURN ARRAY(SELECT jsonb_array_elements_text(x));
END
$$;

-- Rows of steps that have just become READY.
CREATE OR REPLACE FUNCTION orchestrator_insert_ready(p_run uuid, p_ready jsonb, t timestamptz)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO orchestrator_step AS s (
        id, run_id, key, scope, position, index, type, queue, state, ready_at, dispatched_at,
        n_dispatched, waiting_for, waiting_key, why, attempt, n_retries, n_lost, round, fence,
        worker, covered_by, cost_microusd, tokens_in, tokens_out, model, plain_timeout_s, gates)
    SELECT (x ->> 'id')::uuid, p_run, x ->> 'key', x ->> 'scope', (x ->> 'position')::int,
           (x ->> 'index')::int, x ->> 'type', x ->> 'queue', 'ready', t,
           CASE WHEN (x ->> 'queued')::boolean THEN t END,
           CASE WHEN (x ->> 'queued')::boolean THEN 1 ELSE 0 END,
           '', '', '', 0, 0, 0, 1, 0, '', '', 0, 0, 0, '', (x ->> 'plain_timeout_s')::float8,
           orchestrator_text_array(x -> 'gates')
      FROM jsonb_array_elements(p_ready) x;
END
$$;

-- Lines of history, in order, from a sequence on.
CREATE OR REPLACE FUNCTION orchestrator_append(
    p_run uuid, first_seq bigint, p_events jsonb, t timestamptz
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO orchestrator_event (run_id, seq, type, step, payload, actor, at)
    SELECT p_run, first_seq + ordinality - 1, e ->> 0, e ->> 1, e -> 2, e ->> 3, t
      FROM jsonb_array_elements(p_events) WITH ORDINALITY AS x(e, ordinality);
END
$$;

-- A run is born with its first steps and its first lines of history, in one statement.
CREATE OR REPLACE FUNCTION orchestrator_begin(
    p_run uuid, p_tenant text, p_blueprint bigint, p_workflow text, p_number int,
    p_compact bytea, p_state text, p_input jsonb, p_context jsonb, p_trigger jsonb, p_actor text,
    p_correlation text, p_traceparent text, p_parent uuid, p_parent_step uuid, p_depth int,
    p_limit interval, p_is_wall boolean, p_ready jsonb, p_events jsonb
) RETURNS timestamptz LANGUAGE plpgsql AS $$
DECLARE
    t timestamptz := orchestrator_now();
BEGIN
    INSERT INTO orchestrator_run (
        id, tenant, blueprint_id, workflow, workflow_version, state, waiting_for, version,
        next_seq, compact, input, outcome, compensation, warnings, context, trigger, started_by,
        correlation_id, traceparent, parent_id, parent_step, depth, cost_microusd, cost_unknown,
        tokens_in, tokens_out, time_limit, time_is_wall, worked, created_at, updated_at,
        working_since, deadline_at)
    VALUES (
        p_run, p_tenant, p_blueprint, p_workflow, p_number, p_state, '', 1,
        1 + jsonb_array_length(p_events), p_compact, p_input, '', '', '[]', p_context, p_trigger,
        p_actor, p_correlation, p_traceparent, p_parent, p_parent_step, p_depth, 0, false,
        0, 0, p_limit, p_is_wall, interval '0', t, t, t, t + p_limit);
    PERFORM orchestrator_insert_ready(p_run, p_ready, t);
    PERFORM orchestrator_append(p_run, 1, p_events, t);
    RETURN t;
END
$$;

-- Take a step whose place is kept. Planning decided that it may start when its message was sent
-- (READY with the queued bit); what is left is to flip its byte, count it, and lease it. Whatever
-- needs a decision takes nothing and is left to planning: a step before a gate, a run at rest,
-- paused, ending or with loops (then the compact state carries more than its bytes), READY steps
-- that wait for a place, and steps with an effect, a loop or a wait (no plain_timeout_s).
-- "guarded" says whether there is any gate. The layout of the compact state is that of
-- core/snapshot.py, format 2. A claim is a promise of the database to a worker, not a fact about the
-- business: it need not reach the disk before the body begins (ADR 0020). The settle flushes it with
-- itself; lost in a crash, the step is READY as before and runs again. Its fence is taken from the
-- clock, so that one which a crash made forgotten is never given out a second time.
CREATE OR REPLACE FUNCTION orchestrator_take(
    p_run uuid, p_key text, p_scope text, p_worker text, p_lease interval
) RETURNS TABLE (
    taken_at timestamptz, taken_version bigint, taken_fence bigint, guarded boolean)
LANGUAGE plpgsql AS $$
DECLARE
    t timestamptz := orchestrator_now();
    r record;
    s record;
    c bytea;
    n_steps int;
    n_edges int;
    n_running int;
    limit_at timestamptz;
BEGIN
    guarded := EXISTS (SELECT 1 FROM orchestrator_gate);
    SELECT state, version, next_seq, compact, tenant INTO r FROM orchestrator_run
     WHERE id = p_run FOR UPDATE;
    IF NOT FOUND OR r.state NOT IN ('pending', 'running') THEN
        RETURN NEXT;
        RETURN;
    END IF;
    SELECT id, state, position, attempt, fence, plain_timeout_s, queue, gates, passed, n_retries INTO s
      FROM orchestrator_step WHERE run_id = p_run AND key = p_key AND scope = p_scope;
    IF NOT FOUND OR s.state <> 'ready' OR s.plain_timeout_s IS NULL THEN
        RETURN NEXT;
        RETURN;
    END IF;
    IF guarded AND EXISTS (
        SELECT 1 FROM orchestrator_gate g
         WHERE (g.key = ANY(s.gates || ARRAY['global', 'tenant:' || r.tenant, 'queue:' || s.queue])
                OR (s.n_retries > 0 AND g.source = 'retries'
                    AND 'service:' || substr(g.key, 9) = ANY(s.gates)))
           AND (g.expires_at IS NULL OR g.expires_at > t) AND g.key <> s.passed) THEN
        RETURN NEXT;
        RETURN;
    END IF;
    c := r.compact;
    n_steps := get_byte(c, 1) + 256 * get_byte(c, 2);
    n_edges := get_byte(c, 3) + 256 * get_byte(c, 4) + 65536 * get_byte(c, 5);
    IF get_byte(c, 0) <> 2 OR length(c) <> 9 + n_steps + n_edges
       OR get_byte(c, 9 + s.position) <> 129
       OR position('\x01'::bytea IN substring(c FROM 10 FOR n_steps)) > 0 THEN
        RETURN NEXT;
        RETURN;
    END IF;
    n_running := get_byte(c, 7) + 256 * get_byte(c, 8) + 1;
    PERFORM set_config('synchronous_commit', 'off', true);
    taken_fence := greatest(s.fence + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
    c := set_byte(c, 9 + s.position, 2);
    c := set_byte(set_byte(c, 7, n_running & 255), 8, n_running >> 8);
    limit_at := t + make_interval(secs => s.plain_timeout_s);
    UPDATE orchestrator_run SET compact = c, version = version + 1, next_seq = next_seq + 1,
           state = 'running', started_at = coalesce(started_at, t), updated_at = t
     WHERE id = p_run;
    UPDATE orchestrator_step SET state = 'running', fence = taken_fence, attempt = attempt + 1,
           worker = p_worker, started_at = t, timeout_at = limit_at,
           lease_until = least(t + p_lease, limit_at), finished_at = NULL
     WHERE id = s.id;
    INSERT INTO orchestrator_event (run_id, seq, type, step, payload, actor, at)
    VALUES (p_run, r.next_seq, 'step.started', p_key || p_scope,
            jsonb_build_object('attempt', s.attempt + 1), '', t);
    taken_at := t;
    taken_version := r.version + 1;
    RETURN NEXT;
END
$$;

-- The guarded move of one step. Fields that are not named stay as they are.
CREATE OR REPLACE FUNCTION orchestrator_move_step(p_run uuid, m jsonb, t timestamptz)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    target text := m ->> 'to';
    over boolean := target IN ('completed', 'failed', 'skipped', 'timed_out', 'cancelled');
BEGIN
    UPDATE orchestrator_step s SET
        state = target,
        output = CASE WHEN m ? 'output' THEN m -> 'output' ELSE s.output END,
        error = CASE WHEN m ? 'error' THEN nullif(m -> 'error', 'null') ELSE s.error END,
        previous = CASE WHEN m ? 'previous' THEN m -> 'previous' ELSE s.previous END,
        waiting_for = coalesce(m ->> 'waiting_for', ''),
        waiting_key = coalesce(m ->> 'waiting_key', ''),
        why = coalesce(m ->> 'why', ''),
        passed = coalesce(m ->> 'passed', ''),
        n_retries = coalesce((m ->> 'n_retries')::int, s.n_retries),
        n_lost = coalesce((m ->> 'n_lost')::int, s.n_lost),
        round = coalesce((m ->> 'round')::int, s.round),
        items_total = coalesce((m ->> 'items_total')::int, s.items_total),
        input = CASE WHEN m ? 'input' THEN m -> 'input' ELSE s.input END,
        fence = CASE WHEN (m ->> 'bump')::boolean THEN s.fence + 1 ELSE s.fence END,
        ready_at = CASE WHEN target = 'ready' THEN t ELSE s.ready_at END,
        dispatched_at = CASE WHEN (m ->> 'queued')::boolean THEN t END,
        n_dispatched = CASE WHEN (m ->> 'queued')::boolean THEN 1 ELSE 0 END,
        lease_until = NULL,
        timeout_at = NULL,
        finished_at = CASE WHEN over THEN t END,
        cost_microusd = s.cost_microusd + (m ->> 'cost')::bigint,
        tokens_in = s.tokens_in + coalesce((m ->> 'tokens_in')::bigint, 0),
        tokens_out = s.tokens_out + coalesce((m ->> 'tokens_out')::bigint, 0),
        model = coalesce(m ->> 'model', s.model)
    WHERE s.id = (m ->> 'id')::uuid AND s.run_id = p_run AND s.state = m ->> 'from'
      AND s.fence = (m ->> 'fence')::bigint;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'step % is not % with fence %', m ->> 'id', m ->> 'from', m ->> 'fence'
            USING ERRCODE = 'OR002';
    END IF;
    IF m ->> 'from' IN ('waiting', 'retrying') THEN
        DELETE FROM orchestrator_timer WHERE step_id = (m ->> 'id')::uuid;
    END IF;
    IF m ? 'timer' THEN
        PERFORM orchestrator_set_timer(p_run, m, m -> 'timer', t);
    END IF;
    IF m ? 'effect' THEN
        PERFORM orchestrator_settle_effect(p_run, m, m -> 'effect', t);
    END IF;
END
$$;

-- What ends the wait by itself: {kind, seconds} from now or {kind, at}. With "unanswered" the caller
-- holds no lock and has not looked whether the answer came early: whoever stores one has the run's
-- lock, which is ours by now, so that it is seen here or finds the step waiting.
CREATE OR REPLACE FUNCTION orchestrator_set_timer(p_run uuid, m jsonb, w jsonb, t timestamptz)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF w ? 'kind' THEN
        INSERT INTO orchestrator_timer (run_id, step_id, kind, fire_at)
        VALUES (p_run, (m ->> 'id')::uuid, w ->> 'kind',
                coalesce((w ->> 'at')::timestamptz,
                         t + make_interval(secs => (w ->> 'seconds')::float8)))
        ON CONFLICT (step_id, kind) DO UPDATE SET fire_at = excluded.fire_at;
    END IF;
    IF w ? 'unanswered' AND EXISTS (
        SELECT 1 FROM orchestrator_signal WHERE run_id = p_run AND name = m ->> 'waiting_key'
           AND consumed_by IS NULL) THEN
        RAISE EXCEPTION 'the answer to step % is here already', m ->> 'id' USING ERRCODE = 'OR001';
    END IF;
END
$$;

-- The receipt, or that there is none: only for the step that holds the intent.
CREATE OR REPLACE FUNCTION orchestrator_settle_effect(p_run uuid, m jsonb, e jsonb, t timestamptz)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE orchestrator_effect f SET
        status = e ->> 'status',
        response = e -> 'response',
        response_hash = coalesce(e ->> 'response_hash', ''),
        external_ref = coalesce(e ->> 'external_ref', ''),
        reason = coalesce(e ->> 'reason', ''),
        settled_at = CASE WHEN e ->> 'status' = 'in_doubt' THEN NULL ELSE t END
    FROM orchestrator_run r
    WHERE r.id = p_run AND f.tenant = r.tenant AND f.idempotency_key = e ->> 'key'
      AND f.step_id = (m ->> 'id')::uuid AND f.status IN ('intended', 'in_doubt');
    IF NOT FOUND THEN
        RAISE EXCEPTION 'effect % is not held by step %', e ->> 'key', m ->> 'id'
            USING ERRCODE = 'OR002';
    END IF;
END
$$;

-- The intent, in the claim's transaction. With "take" the doubt of an earlier attempt is taken over, if
-- it is still held as it was "seen": of another step not even its status may have changed.
CREATE OR REPLACE FUNCTION orchestrator_intend_effect(p_run uuid, c jsonb, t timestamptz)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    e jsonb := c -> 'effect';
    take boolean := coalesce((e ->> 'take')::boolean, false);
    seen jsonb := e -> 'seen';
BEGIN
    INSERT INTO orchestrator_effect AS f (
        tenant, idempotency_key, run_id, step_id, fence, tool, request_hash, status,
        response_hash, external_ref, reason, intended_at)
    SELECT r.tenant, e ->> 'key', p_run, s.id, s.fence, e ->> 'tool', e ->> 'hash', 'intended',
           '', '', '', t
      FROM orchestrator_run r JOIN orchestrator_step s ON s.id = (c ->> 'id')::uuid
     WHERE r.id = p_run
    ON CONFLICT (tenant, idempotency_key) DO UPDATE SET
        run_id = excluded.run_id, step_id = excluded.step_id, fence = excluded.fence,
        status = CASE WHEN take THEN f.status ELSE 'intended' END,
        intended_at = CASE WHEN take THEN f.intended_at ELSE t END, settled_at = NULL
    WHERE f.request_hash = excluded.request_hash
      AND (CASE WHEN take THEN f.status IN ('intended', 'in_doubt') ELSE f.status = 'not_applied' END)
      AND (NOT take OR f.step_id = (seen ->> 'step')::uuid AND f.fence = (seen ->> 'fence')::bigint
           AND (f.step_id = excluded.step_id OR f.status = seen ->> 'status'));
    IF NOT FOUND THEN
        RAISE EXCEPTION 'effect % moved since it was looked at', e ->> 'key' USING ERRCODE = 'OR004';
    END IF;
END
$$;

-- READY becomes RUNNING under a lease that never outlives the step's own time limit.
CREATE OR REPLACE FUNCTION orchestrator_claim_step(
    p_run uuid, c jsonb, t timestamptz, p_worker text, p_lease interval
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    limit_at timestamptz := t + make_interval(secs => (c ->> 'timeout_s')::float8);
BEGIN
    IF (c ->> 'new')::boolean THEN
        INSERT INTO orchestrator_step (
            id, run_id, key, scope, position, index, type, queue, state, ready_at, dispatched_at,
            n_dispatched, waiting_for, waiting_key, why, attempt, n_retries, n_lost, round, fence,
            worker, covered_by, cost_microusd, tokens_in, tokens_out, model,
            started_at, timeout_at, lease_until, input, gates)
        VALUES (
            (c ->> 'id')::uuid, p_run, c ->> 'key', c ->> 'scope', (c ->> 'position')::int,
            (c ->> 'index')::int, c ->> 'type', c ->> 'queue', 'running', t, t,
            0, '', '', '', 1, 0, 0, 1, 1,
            p_worker, '', 0, 0, 0, '',
            t, limit_at, least(t + p_lease, limit_at), c -> 'input',
            orchestrator_text_array(c -> 'gates'));
        IF c ? 'effect' THEN
            PERFORM orchestrator_intend_effect(p_run, c, t);
        END IF;
        RETURN;
    END IF;
    UPDATE orchestrator_step s SET
        state = 'running', fence = s.fence + 1, attempt = s.attempt + 1, worker = p_worker,
        started_at = t, timeout_at = limit_at, lease_until = least(t + p_lease, limit_at),
        finished_at = NULL, input = c -> 'input', passed = coalesce(c ->> 'passed', s.passed)
    WHERE s.id = (c ->> 'id')::uuid AND s.run_id = p_run AND s.state = 'ready'
      AND s.fence = (c ->> 'fence')::bigint;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'step % is not ready with fence %', c ->> 'id', c ->> 'fence'
            USING ERRCODE = 'OR002';
    END IF;
    IF c ? 'effect' THEN
        PERFORM orchestrator_intend_effect(p_run, c, t);
    END IF;
END
$$;
