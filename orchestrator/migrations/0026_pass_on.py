"""A step behind a plain one on another queue is made READY by a lean statement too."""

from pathlib import Path

from django.db import migrations

_ADVANCE = Path(__file__).resolve().parent.parent / "models" / "sql" / "advance.sql"


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0025_ready_pages")]

    operations = [migrations.RunSQL(_ADVANCE.read_text(), migrations.RunSQL.noop)]
