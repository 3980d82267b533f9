-- A gate asks: close older rounds, keep the request and who is asked, and make sure that the attempt
-- still holds its step. Own rows first, then the run, whose share lock keeps the step where it is:
-- every move of a step writes the run's row, so a cancel that came first is seen here, and one that
-- comes later tells of a row that is committed. Asking twice keeps the first request.
--
-- AP001  the attempt no longer holds the step: nobody must be asked, and nothing is stored
CREATE OR REPLACE FUNCTION approvals_ask(
    p_id uuid, p_tenant text, p_run uuid, p_workflow text, p_key text, p_scope text, p_attempt int,
    p_fence bigint, p_title text, p_message text, p_form jsonb, p_quorum int, p_four_eyes boolean,
    p_starter text, p_upstream jsonb, p_timeout interval, p_asked jsonb
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    t timestamptz := orchestrator_now();
BEGIN
    IF p_attempt > 1 THEN
        UPDATE approvals_app_request SET state = 'cancelled', outcome = '', closed_by = 'system:run',
               closed_at = t
         WHERE run_id = p_run AND key = p_key AND scope = p_scope AND attempt < p_attempt
           AND state = 'open';
    END IF;
    INSERT INTO approvals_app_request (
        id, tenant, run_id, workflow, key, scope, attempt, title, message, form, quorum, four_eyes,
        starter, upstream, state, outcome, opened_at, due_at, closed_by)
    VALUES (
        p_id, p_tenant, p_run, p_workflow, p_key, p_scope, p_attempt, p_title, p_message, p_form,
        p_quorum, p_four_eyes, p_starter, p_upstream, 'open', '', t, t + p_timeout, '')
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        INSERT INTO approvals_app_assignment (request_id, who, tier, from_at)
        SELECT p_id, x ->> 0, (x ->> 1)::int, t + make_interval(secs => (x ->> 2)::float8)
          FROM jsonb_array_elements(p_asked) x;
    END IF;
    PERFORM 1 FROM orchestrator_run WHERE id = p_run
        AND state NOT IN ('completed', 'failed', 'cancelled', 'timed_out') FOR SHARE;
    IF FOUND THEN
        PERFORM 1 FROM orchestrator_step WHERE run_id = p_run AND key = p_key AND scope = p_scope
            AND state = 'running' AND fence = p_fence;
    END IF;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'step % of run % is no longer held with fence %', p_key, p_run, p_fence
            USING ERRCODE = 'AP001';
    END IF;
END
$$;

-- One person's answer, and the request's end if the answers have settled it. Call with the request
-- locked. The instant at which it was closed; NULL: it stays open.
CREATE OR REPLACE FUNCTION approvals_answer(
    p_request uuid, p_by text, p_choice text, p_notes text, p_data jsonb, p_outcome text
) RETURNS timestamptz LANGUAGE plpgsql AS $$
DECLARE
    t timestamptz := orchestrator_now();
BEGIN
    INSERT INTO approvals_app_decision (request_id, by, choice, notes, data, at)
    VALUES (p_request, p_by, p_choice, p_notes, p_data, t);
    IF p_outcome = '' THEN
        RETURN NULL;
    END IF;
    UPDATE approvals_app_request SET state = 'decided', outcome = p_outcome, closed_by = p_by,
           closed_at = t
     WHERE id = p_request AND state = 'open';
    IF NOT FOUND THEN
        RAISE EXCEPTION 'request % is not open', p_request USING ERRCODE = 'AP002';
    END IF;
    RETURN t;
END
$$;

-- The request under its lock, who may decide by now, and who has said what. The lock comes first, and
-- the others are read by later statements: whoever held it before has been seen. In one statement the
-- row would be fresh after the wait, and the answers as they were before it.
CREATE OR REPLACE FUNCTION approvals_lock(p_request uuid, p_tenant text)
RETURNS TABLE (request approvals_app_request, asked text[], said text[])
LANGUAGE plpgsql AS $$
BEGIN
    SELECT r.* INTO request FROM approvals_app_request r
     WHERE r.id = p_request AND r.tenant = p_tenant FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    asked := ARRAY(
        SELECT a.who FROM approvals_app_assignment a
         WHERE a.request_id = p_request AND a.from_at <= orchestrator_now() ORDER BY a.tier, a.id);
    said := ARRAY(
        SELECT w FROM approvals_app_decision d, unnest(ARRAY[d.by, d.choice]) WITH ORDINALITY x(w, n)
         WHERE d.request_id = p_request ORDER BY d.id, n);
    RETURN NEXT;
END
$$;
