"""A claim that a crash made forgotten is never given out again (ADR 0020)."""

from pathlib import Path

from django.db import migrations

_APPLY = Path(__file__).resolve().parent.parent / "models" / "sql" / "apply.sql"


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0015_letters")]

    operations = [
        migrations.RunSQL("DROP FUNCTION orchestrator_take(uuid, text, text, text, interval)"),
        migrations.RunSQL(_APPLY.read_text(), migrations.RunSQL.noop),
    ]
