"""A start key is taken by one statement, in the run's own transaction."""

from django.db import migrations

_TAKE = """
-- WF001  another transaction is just starting a run under this key
-- WF002  the key has started a run
CREATE OR REPLACE FUNCTION workflows_take_start_key(
    p_tenant text, p_workflow text, p_key text, p_fingerprint text, p_run uuid, p_answer jsonb
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended(
        concat_ws(chr(31), 'start', p_tenant, p_workflow, p_key), 0)) THEN
        RAISE EXCEPTION 'the key is in flight' USING ERRCODE = 'WF001';
    END IF;
    INSERT INTO workflows_app_startkey (
        tenant, workflow, key, fingerprint, run_id, answer, created_at)
    VALUES (p_tenant, p_workflow, p_key, p_fingerprint, p_run, p_answer, now())
    ON CONFLICT (tenant, workflow, key) DO NOTHING;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the key was used' USING ERRCODE = 'WF002';
    END IF;
    RETURN true;
END
$$
"""


class Migration(migrations.Migration):
    dependencies = [("workflows_app", "0001_initial")]

    operations = [
        migrations.RunSQL(_TAKE, "DROP FUNCTION workflows_take_start_key(text, text, text, text, uuid, jsonb)")
    ]
