-- A wait is over, plainly: the step completes and others become READY, or it is READY again itself.
-- It writes what orchestrator_apply would (a test holds both to the same rows) at less than half the
-- price, and takes the step's timers away with it.
--
-- p_queued NULL: the step has completed with p_output; else it is READY again, and p_queued says
-- whether a message is on its way. p_ready and p_events as in orchestrator_apply. p_lazy: the commit
-- need not reach the disk by itself; whoever asks for that flushes before anybody hears of it.
--
-- OR001  the run moved meanwhile, or neither waits nor runs
-- OR002  the step no longer waits under this fence
CREATE OR REPLACE FUNCTION orchestrator_wake(
    p_run uuid, p_version bigint, p_compact bytea, p_step uuid, p_fence bigint, p_from text,
    p_output jsonb, p_queued boolean, p_ready jsonb, p_events jsonb, p_lazy boolean
) RETURNS timestamptz LANGUAGE plpgsql AS $$
DECLARE
    t timestamptz := orchestrator_now();
    seq bigint;
BEGIN
    IF p_lazy THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    UPDATE orchestrator_run r SET version = p_version + 1, compact = p_compact, updated_at = t,
           next_seq = next_seq + jsonb_array_length(p_events), state = 'running', waiting_for = '',
           working_since = coalesce(working_since, t),
           deadline_at = CASE WHEN time_is_wall OR working_since IS NOT NULL THEN deadline_at
                              ELSE t + (time_limit - worked) END
     WHERE id = p_run AND version = p_version AND state IN ('waiting', 'running')
    RETURNING next_seq - jsonb_array_length(p_events) INTO seq;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'run % is not at version %', p_run, p_version USING ERRCODE = 'OR001';
    END IF;

    IF p_queued IS NULL THEN
        UPDATE orchestrator_step SET state = 'completed', output = p_output, error = NULL,
               waiting_for = '', waiting_key = '', why = '', passed = '', finished_at = t,
               dispatched_at = NULL, n_dispatched = 0
         WHERE id = p_step AND run_id = p_run AND state = p_from AND fence = p_fence;
    ELSE
        UPDATE orchestrator_step SET state = 'ready', ready_at = t,
               waiting_for = '', waiting_key = '', why = '', passed = '', finished_at = NULL,
               dispatched_at = CASE WHEN p_queued THEN t END,
               n_dispatched = CASE WHEN p_queued THEN 1 ELSE 0 END
         WHERE id = p_step AND run_id = p_run AND state = p_from AND fence = p_fence;
    END IF;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'step % is not % with fence %', p_step, p_from, p_fence
            USING ERRCODE = 'OR002';
    END IF;

    DELETE FROM orchestrator_timer WHERE step_id = p_step;
    IF p_ready IS NOT NULL THEN
        PERFORM orchestrator_insert_ready(p_run, p_ready, t);
    END IF;
    PERFORM orchestrator_append(p_run, seq, p_events, t);
    RETURN t;
END
$$;
