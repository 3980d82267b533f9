"""READY steps are looked at by queue, a page at a time."""

from django.db import migrations, models
from django.db.models.functions import Coalesce


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0024_turns")]

    operations = [
        migrations.RemoveIndex(model_name="step", name="orchestrator_step_ready"),
        migrations.AddIndex(
            model_name="step",
            index=models.Index(
                models.F("queue"),
                Coalesce("dispatched_at", "ready_at"),
                condition=models.Q(("state", "ready")),
                name="orchestrator_step_ready",
            ),
        ),
    ]
