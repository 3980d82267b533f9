"""Asking and answering are one statement each."""

from pathlib import Path

from django.db import migrations

_GATES = Path(__file__).resolve().parent.parent / "sql" / "gates.sql"


class Migration(migrations.Migration):
    dependencies = [
        ("approvals_app", "0001_requests"),
        ("orchestrator", "0002_engine_sql"),
    ]

    operations = [
        migrations.RunSQL(
            _GATES.read_text(),
            "DROP FUNCTION approvals_ask; DROP FUNCTION approvals_answer;"
            " DROP FUNCTION approvals_lock",
        ),
    ]
