-- The one clock of due times. STABLE and inlined; the test settings replace it with one that adds
-- an offset, so that time is turned and never slept.
CREATE OR REPLACE FUNCTION orchestrator_now() RETURNS timestamptz
    LANGUAGE sql STABLE PARALLEL SAFE AS 'SELECT now()';
