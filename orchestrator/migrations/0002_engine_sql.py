"""The engine's functions and the partitioned history, from orchestrator/models/sql."""

from pathlib import Path

from django.db import migrations

_SQL = Path(__file__).resolve().parent.parent / "models" / "sql"


def _script(name):
    return (_SQL / f"{name}.sql").read_text()


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0001_tables")]

    operations = [
        migrations.RunSQL(
            _script("clock"), "DROP FUNCTION orchestrator_now() CASCADE", elidable=False
        ),
        migrations.RunSQL(
            _script("history"),
            "DROP TABLE orchestrator_event; DROP FUNCTION orchestrator_event_refuse;"
            "DROP FUNCTION orchestrator_event_partitions; DROP FUNCTION orchestrator_uuid7_floor",
        ),
        migrations.RunSQL(
            _script("apply"),
            "DROP FUNCTION orchestrator_apply; DROP FUNCTION orchestrator_move_step;"
            "DROP FUNCTION orchestrator_claim_step; DROP FUNCTION orchestrator_begin; DROP FUNCTION orchestrator_take;"
            "DROP FUNCTION orchestrator_insert_ready; DROP FUNCTION orchestrator_append;"
            "DROP FUNCTION orchestrator_settle_effect; DROP FUNCTION orchestrator_intend_effect",
        ),
        migrations.RunSQL(
            "ALTER TABLE orchestrator_run SET (fillfactor = 70);"
            "ALTER TABLE orchestrator_step SET (fillfactor = 70)",
            migrations.RunSQL.noop,
        ),
    ]
