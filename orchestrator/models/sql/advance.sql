-- The plain way on: a step without an effect has completed, and the next step of its run is claimed
-- with it. It writes what orchestrator_apply would (a test holds both to the same rows) at less than
-- half the price: typed arguments, no nested calls, and no column named that stays as it is.
--
-- The run is and stays running; the next step is new. p_input is the input of the settled step
-- where its claim did not write it (NULL: it did). p_events as in orchestrator_apply, or NULL for
-- the three lines that nearly every step has: completed, ready, started.
--
-- OR001  the run moved meanwhile, or is not running
-- OR002  the step is no longer running under this fence
CREATE OR REPLACE FUNCTION orchestrator_advance(
    p_run uuid, p_version bigint, p_compact bytea,
    p_step uuid, p_fence bigint, p_done text, p_output jsonb, p_input jsonb,
    p_next uuid, p_key text, p_position int, p_type text, p_queue text, p_timeout float8,
    p_next_input jsonb, p_gates text[], p_events jsonb, p_worker text, p_lease interval
) RETURNS timestamptz LANGUAGE plpgsql AS $$
DECLARE
    t timestamptz := orchestrator_now();
    limit_at timestamptz := t + make_interval(secs => p_timeout);
    seq bigint;
BEGIN
    UPDATE orchestrator_run SET version = p_version + 1, compact = p_compact, updated_at = t,
           next_seq = next_seq + coalesce(jsonb_array_length(p_events), 3)
     WHERE id = p_run AND version = p_version AND state = 'running'
    RETURNING next_seq - coalesce(jsonb_array_length(p_events), 3) INTO seq;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'run % is not at version %', p_run, p_version USING ERRCODE = 'OR001';
    END IF;

    UPDATE orchestrator_step SET state = 'completed', output = p_output, error = NULL,
           input = coalesce(p_input, input), finished_at = t, lease_until = NULL, timeout_at = NULL,
           dispatched_at = NULL, n_dispatched = 0, why = '', passed = '', waiting_key = ''
     WHERE id = p_step AND run_id = p_run AND state = 'running' AND fence = p_fence;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'step % is not running with fence %', p_step, p_fence
            USING ERRCODE = 'OR002';
    END IF;

    INSERT INTO orchestrator_step (
        id, run_id, key, scope, position, index, type, queue, state, ready_at, dispatched_at,
        n_dispatched, waiting_for, waiting_key, why, attempt, n_retries, n_lost, round, fence,
        worker, covered_by, cost_microusd, tokens_in, tokens_out, model,
        started_at, timeout_at, lease_until, input, gates)
    VALUES (
        p_next, p_run, p_key, '', p_position, NULL, p_type, p_queue, 'running', t, t,
        0, '', '', '', 1, 0, 0, 1, 1,
        p_worker, '', 0, 0, 0, '',
        t, limit_at, least(t + p_lease, limit_at), p_next_input, p_gates);

    IF p_events IS NOT NULL THEN
        PERFORM orchestrator_append(p_run, seq, p_events, t);
        RETURN t;
    END IF;
    INSERT INTO orchestrator_event (run_id, seq, type, step, payload, actor, at) VALUES
        (p_run, seq, 'step.completed', p_done, '{}', '', t),
        (p_run, seq + 1, 'step.ready', p_key, '{}', '', t),
        (p_run, seq + 2, 'step.started', p_key, '{"attempt": 1}', '', t);
    RETURN t;
END
$$;

-- The plain end: a step without an effect has completed, and its run with it, which nobody has to be
-- told. What orchestrator_apply would write, as above. p_events NULL: completed, and p_ended (the
-- payload of run.completed).
CREATE OR REPLACE FUNCTION orchestrator_finish(
    p_run uuid, p_version bigint, p_compact bytea,
    p_step uuid, p_fence bigint, p_done text, p_output jsonb, p_input jsonb,
    p_run_output jsonb, p_outcome text, p_compensation text, p_warnings jsonb,
    p_ended jsonb, p_events jsonb
) RETURNS timestamptz LANGUAGE plpgsql AS $$
DECLARE
    t timestamptz := orchestrator_now();
    seq bigint;
BEGIN
    UPDATE orchestrator_run SET version = p_version + 1, compact = p_compact, updated_at = t,
           next_seq = next_seq + coalesce(jsonb_array_length(p_events), 2),
           state = 'completed', finished_at = coalesce(finished_at, t),
           worked = worked + coalesce(t - working_since, interval '0'), working_since = NULL,
           deadline_at = CASE WHEN time_is_wall THEN deadline_at END,
           output = p_run_output, error = NULL, outcome = p_outcome,
           compensation = p_compensation, warnings = p_warnings
     WHERE id = p_run AND state = 'running' AND version = p_version
    RETURNING next_seq - coalesce(jsonb_array_length(p_events), 2) INTO seq;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'run % is not at version %', p_run, p_version USING ERRCODE = 'OR001';
    END IF;

    UPDATE orchestrator_step SET state = 'completed', output = p_output, error = NULL,
           input = coalesce(p_input, input), finished_at = t, lease_until = NULL, timeout_at = NULL,
           dispatched_at = NULL, n_dispatched = 0, why = '', passed = '', waiting_key = ''
     WHERE id = p_step AND fence = p_fence AND run_id = p_run AND state = 'running';
    IF NOT FOUND THEN
        RAISE EXCEPTION 'step % is not running with fence %', p_step, p_fence
            USING ERRCODE = 'OR002';
    END IF;

    IF p_events IS NOT NULL THEN
        PERFORM orchestrator_append(p_run, seq, p_events, t);
        RETURN t;
    END IF;
    INSERT INTO orchestrator_event (run_id, seq, type, step, payload, actor, at) VALUES
        (p_run, seq, 'step.completed', p_done, '{}', '', t),
        (p_run, seq + 1, 'run.completed', '', p_ended, '', t);
    RETURN t;
END
$$;

-- The plain way on to another queue: a step without an effect has completed, and the one step behind
-- it is READY, with a message on its way. What orchestrator_apply would write, as above. p_events
-- NULL: completed, ready. p_plain_timeout as in orchestrator_insert_ready.
CREATE OR REPLACE FUNCTION orchestrator_pass_on(
    p_run uuid, p_version bigint, p_compact bytea,
    p_step uuid, p_fence bigint, p_done text, p_output jsonb, p_input jsonb,
    p_next uuid, p_key text, p_position int, p_type text, p_queue text, p_plain_timeout float8,
    p_gates text[], p_events jsonb
) RETURNS timestamptz LANGUAGE plpgsql AS $$
DECLARE
    t timestamptz := orchestrator_now();
    seq bigint;
BEGIN
    UPDATE orchestrator_run SET version = p_version + 1, compact = p_compact, updated_at = t,
           next_seq = next_seq + coalesce(jsonb_array_length(p_events), 2)
     WHERE version = p_version AND state = 'running' AND id = p_run
    RETURNING next_seq - coalesce(jsonb_array_length(p_events), 2) INTO seq;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'run % is not at version %', p_run, p_version USING ERRCODE = 'OR001';
    END IF;

    UPDATE orchestrator_step SET state = 'completed', output = p_output, error = NULL,
           input = coalesce(p_input, input), finished_at = t, lease_until = NULL, timeout_at = NULL,
           dispatched_at = NULL, n_dispatched = 0, why = '', passed = '', waiting_key = ''
     WHERE run_id = p_run AND state = 'running' AND id = p_step AND fence = p_fence;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'step % is not running with fence %', p_step, p_fence
            USING ERRCODE = 'OR002';
    END IF;

    INSERT INTO orchestrator_step (
        id, run_id, key, scope, position, index, type, queue, state, ready_at, dispatched_at,
        n_dispatched, waiting_for, waiting_key, why, attempt, n_retries, n_lost, round, fence,
        worker, covered_by, cost_microusd, tokens_in, tokens_out, model, plain_timeout_s, gates)
    VALUES (
        p_next, p_run, p_key, '', p_position, NULL, p_type, p_queue, 'ready', t, t,
        1, '', '', '', 0, 0, 0, 1, 0,
        '', '', 0, 0, 0, '', p_plain_timeout, p_gates);

    IF p_events IS NOT NULL THEN
        PERFORM orchestrator_append(p_run, seq, p_events, t);
        RETURN t;
    END IF;
    INSERT INTO orchestrator_event (run_id, seq, type, step, payload, actor, at) VALUES
        (p_run, seq, 'step.completed', p_done, '{}', '', t),
        (p_run, seq + 1, 'step.ready', p_key, '{}', '', t);
    RETURN t;
END
$$;
