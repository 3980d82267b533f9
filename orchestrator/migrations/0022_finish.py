"""The plain end of a run has a lean statement too."""

from pathlib import Path

from django.db import migrations

_ADVANCE = Path(__file__).resolve().parent.parent / "models" / "sql" / "advance.sql"


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0021_advance")]

    operations = [migrations.RunSQL(_ADVANCE.read_text(), migrations.RunSQL.noop)]
