"""What this installation can run: tools, models and queues, as publishing asks for them."""

from __future__ import annotations

from collections.abc import Collection

from django.conf import settings

from orchestrator.adapters.llm import models
from orchestrator.authoring import registry
from orchestrator.core.validation.catalogue import ToolSpec
from orchestrator.engine import aliases


class InstalledParts:
    """The part of a ``core.validation.Catalogue`` that is the same for every tenant."""

    def tool(self, name: str) -> ToolSpec | None:
        """The registered tool of that name."""
        if name not in registry:
            return None
        spec = registry.get(name)
        return ToolSpec(
            name=spec.name,
            input_schema=spec.input_schema,
            output_schema=spec.output_schema,
            idempotent=spec.idempotent,
            effect=spec.effect,
            reconciles=spec.reconcile is not None,
            service=spec.service,
            literal=spec.literal,
            key_header=spec.key_header,
        )

    def tools(self) -> tuple[str, ...]:
        """The names of all registered tools."""
        return registry.names()

    def has_model(self, alias: str) -> bool:
        """Whether the alias, or ``provider:model``, can be called."""
        aliases.cache.refresh()
        return models.has_model(alias)

    def models(self) -> tuple[str, ...]:
        """All aliases of models."""
        aliases.cache.refresh()
        return models.aliases()

    @property
    def queues(self) -> Collection[str]:
        """The queues that workers of this installation consume."""
        queues: Collection[str] = settings.ORCHESTRATOR["QUEUES"]
        return queues
