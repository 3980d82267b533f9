"""A worker settles, claims and gives back several steps in one statement."""

from pathlib import Path

from django.db import migrations

_COMPANY = Path(__file__).resolve().parent.parent / "models" / "sql" / "company.sql"


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0026_pass_on")]

    operations = [migrations.RunSQL(_COMPANY.read_text(), migrations.RunSQL.noop)]
