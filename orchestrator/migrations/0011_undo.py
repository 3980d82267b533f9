"""A run that is undone after its end keeps the instant at which it ended."""

from pathlib import Path

from django.db import migrations

_APPLY = Path(__file__).resolve().parent.parent / "models" / "sql" / "apply.sql"


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0010_replay_checks")]

    operations = [migrations.RunSQL(_APPLY.read_text(), migrations.RunSQL.noop)]
