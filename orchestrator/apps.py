"""The Django app of the engine."""

from django.apps import AppConfig
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules


class OrchestratorConfig(AppConfig):
    """How a run runs."""

    name = "orchestrator"
    verbose_name = "Orchestrator"

    def ready(self) -> None:
        """Fill the engine's ports, find the tools of every installed app, schedule the sweeps."""
        from orchestrator import checks, engine
        from orchestrator.adapters.llm import models
        from orchestrator.engine.aliases import cache as aliases
        from orchestrator.tasks.dispatch import CeleryDispatcher
        from orchestrator.tasks.schedule import ensure_entries

        autodiscover_modules("tools")
        engine.set_dispatcher(CeleryDispatcher())
        models.set_alias_source(aliases.now)
        post_migrate.connect(ensure_entries, sender=self)
        checks.register()
