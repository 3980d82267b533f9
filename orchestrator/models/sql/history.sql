-- The history: partitioned by run (UUIDv7: order is month of birth), insert-only.
CREATE TABLE orchestrator_event (
    run_id  uuid        NOT NULL,
    seq     bigint      NOT NULL,
    type    text        NOT NULL,
    step    text        NOT NULL DEFAULT '',
    payload jsonb       NOT NULL DEFAULT '{}',
    at      timestamptz NOT NULL,
    actor   text        NOT NULL DEFAULT '',
    id      bigint      GENERATED ALWAYS AS IDENTITY,
    xid     xid8        NOT NULL DEFAULT pg_current_xact_id(),
    PRIMARY KEY (run_id, seq)
) PARTITION BY RANGE (run_id);

CREATE TABLE orchestrator_event_default PARTITION OF orchestrator_event DEFAULT;
CREATE INDEX orchestrator_event_export ON orchestrator_event USING brin (id);

-- The first UUIDv7 of an instant.
CREATE FUNCTION orchestrator_uuid7_floor(at timestamptz) RETURNS uuid
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0')
            || '70008000000000000000')::uuid
$$;

-- Make the partitions of this month and the next three. Safe to run at any time, twice at once.
CREATE FUNCTION orchestrator_event_partitions() RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    month timestamptz := date_trunc('month', orchestrator_now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC';
    made int := 0;
    name text;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('orchestrator_event_partitions'));
    FOR i IN 0..3 LOOP
        name := 'orchestrator_event_' || to_char(month AT TIME ZONE 'UTC', 'YYYYMM');
        IF to_regclass(name) IS NULL AND NOT EXISTS (
            SELECT 1 FROM orchestrator_event_default
             WHERE run_id >= orchestrator_uuid7_floor(month)
               AND run_id < orchestrator_uuid7_floor(month + interval '1 month')) THEN
            EXECUTE format('CREATE TABLE %I PARTITION OF orchestrator_event FOR VALUES FROM (%L) TO (%L)',
                           name, orchestrator_uuid7_floor(month),
                           orchestrator_uuid7_floor(month + interval '1 month'));
            made := made + 1;
        END IF;
        month := month + interval '1 month';
    END LOOP;
    RETURN made;
END
$$;
SELECT orchestrator_event_partitions();

-- What has happened stays as it was written. Retention works under its own setting.
CREATE FUNCTION orchestrator_event_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('orchestrator.retention', true) = 'on' THEN
        RETURN coalesce(NEW, OLD);
    END IF;
    RAISE EXCEPTION 'the history is append-only: % is refused', TG_OP USING ERRCODE = 'OR003';
END
$$;
CREATE TRIGGER orchestrator_event_append_only
    BEFORE UPDATE OR DELETE ON orchestrator_event
    FOR EACH ROW EXECUTE FUNCTION orchestrator_event_refuse();
