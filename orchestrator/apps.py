"""The Django app of the engine."""

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class OrchestratorConfig(AppConfig):
    """How a run runs."""

    name = "orchestrator"
    verbose_name = "Orchestrator"

    def ready(self) -> None:
        """Fill the engine's ports and find the tools of every installed app."""
        from orchestrator import checks, engine
        from orchestrator.tasks.dispatch import CeleryDispatcher

        autodiscover_modules("tools")
        engine.set_dispatcher(CeleryDispatcher())
        checks.register()
