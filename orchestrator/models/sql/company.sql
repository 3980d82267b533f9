-- One decision about steps that one worker holds together: what orchestrator_apply writes, and
-- beside it the moves of all that is settled at once, and the claims of all that is taken at once.
-- Guarded as there, and all or nothing: one step that is not as expected lets nothing be written.
--
-- p_settled [{id, fence, to, [output], [input]}]: bodies that are over (completed), and what the
--           worker gives back unbegun (ready: that claim does not count as an attempt)
-- p_company [{id, fence, timeout_s, input}] of rows, or with "new": true the rows themselves:
--           claimed with p_claim, which is the first of them
-- Rows of steps are locked by their run first; renewing leases waits for no row.
CREATE OR REPLACE FUNCTION orchestrator_apply_many(
    p_run uuid, p_version bigint, p_compact bytea, p_state text, p_waiting text,
    p_end jsonb, p_subject jsonb, p_ready jsonb, p_claim jsonb, p_events jsonb,
    p_worker text, p_lease interval, p_settled jsonb, p_company jsonb
) RETURNS timestamptz LANGUAGE plpgsql AS $$
DECLARE
    t timestamptz;
    n_moved int;
BEGIN
    t := orchestrator_apply(p_run, p_version, p_compact, p_state, p_waiting, p_end, p_subject,
                            p_ready, p_claim, p_events, p_worker, p_lease);
    IF p_settled IS NOT NULL THEN
        UPDATE orchestrator_step s SET
            state = x ->> 'to',
            output = CASE WHEN x ? 'output' THEN x -> 'output' ELSE s.output END,
            error = CASE WHEN x ? 'output' THEN NULL ELSE s.error END,
            input = CASE WHEN x ? 'input' THEN x -> 'input' ELSE s.input END,
            attempt = CASE WHEN x ->> 'to' = 'ready' THEN s.attempt - 1 ELSE s.attempt END,
            ready_at = CASE WHEN x ->> 'to' = 'ready' THEN t ELSE s.ready_at END,
            finished_at = CASE WHEN x ->> 'to' = 'completed' THEN t END,
            lease_until = NULL, timeout_at = NULL, dispatched_at = NULL, n_dispatched = 0,
            waiting_for = '', waiting_key = '', why = '', passed = ''
          FROM jsonb_array_elements(p_settled) x
         WHERE s.id = (x ->> 'id')::uuid AND s.run_id = p_run AND s.state = 'running'
           AND s.fence = (x ->> 'fence')::bigint;
        GET DIAGNOSTICS n_moved = ROW_COUNT;
        IF n_moved <> jsonb_array_length(p_settled) THEN
            RAISE EXCEPTION 'of % steps % are held', jsonb_array_length(p_settled), n_moved
                USING ERRCODE = 'OR002';
        END IF;
    END IF;
    IF p_company IS NOT NULL THEN
        PERFORM orchestrator_claim_company(p_run, p_company, t, p_worker, p_lease);
    END IF;
    RETURN t;
END
$$;

-- What a worker takes beside its first: each is a plain body without an effect.
CREATE OR REPLACE FUNCTION orchestrator_claim_company(
    p_run uuid, p_company jsonb, t timestamptz, p_worker text, p_lease interval
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    n_known int;
    n_moved int;
BEGIN
    INSERT INTO orchestrator_step (
        id, run_id, key, scope, position, index, type, queue, state, ready_at, dispatched_at,
        n_dispatched, waiting_for, waiting_key, why, attempt, n_retries, n_lost, round, fence,
        worker, covered_by, cost_microusd, tokens_in, tokens_out, model,
        started_at, timeout_at, lease_until, input, gates)
    SELECT (c ->> 'id')::uuid, p_run, c ->> 'key', c ->> 'scope', (c ->> 'position')::int,
           (c ->> 'index')::int, c ->> 'type', c ->> 'queue', 'running', t, t,
           0, '', '', '', 1, 0, 0, 1, 1,
           p_worker, '', 0, 0, 0, '',
           t, t + make_interval(secs => (c ->> 'timeout_s')::float8),
           least(t + p_lease, t + make_interval(secs => (c ->> 'timeout_s')::float8)),
           c -> 'input', orchestrator_text_array(c -> 'gates')
      FROM jsonb_array_elements(p_company) c WHERE (c ->> 'new')::boolean;
    GET DIAGNOSTICS n_known = ROW_COUNT;
    n_known := jsonb_array_length(p_company) - n_known;
    IF n_known = 0 THEN
        RETURN;
    END IF;
    UPDATE orchestrator_step s SET
        state = 'running', fence = s.fence + 1, attempt = s.attempt + 1, worker = p_worker,
        started_at = t, timeout_at = t + make_interval(secs => (c ->> 'timeout_s')::float8),
        lease_until = least(t + p_lease, t + make_interval(secs => (c ->> 'timeout_s')::float8)),
        finished_at = NULL, input = c -> 'input'
      FROM jsonb_array_elements(p_company) c
     WHERE NOT coalesce((c ->> 'new')::boolean, false) AND s.id = (c ->> 'id')::uuid
       AND s.run_id = p_run AND s.state = 'ready' AND s.fence = (c ->> 'fence')::bigint;
    GET DIAGNOSTICS n_moved = ROW_COUNT;
    IF n_moved <> n_known THEN
        RAISE EXCEPTION 'not all of % steps are ready', n_known USING ERRCODE = 'OR002';
    END IF;
END
$$;
