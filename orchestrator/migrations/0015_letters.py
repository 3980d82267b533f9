"""Dead letters: their region, and that a person settled one by hand."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0014_nested_calls")]

    operations = [
        migrations.AddField(
            "deadletter", "region", models.TextField(blank=True, db_default="", default="")
        ),
        migrations.AddField("deadletter", "settled_at", models.DateTimeField(null=True)),
        migrations.AddField(
            "deadletter", "settled_by", models.TextField(blank=True, db_default="", default="")
        ),
        migrations.AddField(
            "deadletter", "settlement", models.TextField(blank=True, db_default="", default="")
        ),
        migrations.RemoveIndex("deadletter", "orchestrator_letters_open"),
        migrations.AddIndex(
            "deadletter",
            models.Index(
                fields=["tenant", "-id"],
                name="orchestrator_letters_open",
                condition=models.Q(retried_at__isnull=True, settled_at__isnull=True),
            ),
        ),
    ]
