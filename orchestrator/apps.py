"""The Django app of the engine."""

from django.apps import AppConfig


class OrchestratorConfig(AppConfig):
    """How a run runs."""

    name = "orchestrator"
    verbose_name = "Orchestrator"
