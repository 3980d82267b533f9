"""A doubt is taken over only from the attempt that was seen to hold it."""

from pathlib import Path

from django.db import migrations

_APPLY = Path(__file__).resolve().parent.parent / "models" / "sql" / "apply.sql"


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0017_bulk_retries")]

    operations = [migrations.RunSQL(_APPLY.read_text(), migrations.RunSQL.noop)]
