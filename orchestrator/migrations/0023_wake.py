"""Waits end by a statement of their own, and a settle sets and drops the timers of its step."""

from pathlib import Path

from django.db import migrations

_SQL = Path(__file__).resolve().parent.parent / "models" / "sql"


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0022_finish")]

    operations = [
        migrations.RunSQL((_SQL / "apply.sql").read_text(), migrations.RunSQL.noop),
        migrations.RunSQL((_SQL / "wake.sql").read_text(), "DROP FUNCTION orchestrator_wake"),
    ]
