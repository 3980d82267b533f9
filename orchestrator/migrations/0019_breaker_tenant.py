"""What a breaker heard last is told only to the tenant whose step heard it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("orchestrator", "0018_take_over_as_seen"),
    ]

    operations = [
        migrations.AddField(
            model_name="breaker",
            name="last_tenant",
            field=models.TextField(blank=True, db_default="", default=""),
        ),
    ]
