"""What an installation adds to a document: services behind its parts, how queues are split."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.core.gates import gate_key, own_name
from orchestrator.core.routing import Place, QueueRoute, route


def _nobody(_name: str) -> str:
    return ""


def _no_gates(_model: str) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """``tool_service`` names the outside service behind a tool, empty when there is none;
    ``model_gates`` the gates, beside its own, before a model that no alias stands for.
    ``routes`` are the rules that split queues; ``tenant`` whose blueprint is compiled."""

    tool_service: Callable[[str], str] = _nobody
    model_gates: Callable[[str], tuple[str, ...]] = _no_gates
    routes: tuple[QueueRoute, ...] = ()
    tenant: str = ""

    def service_of(self, config: Mapping[str, Any]) -> str:
        """The service of a step by its block: the one it names, else that of its tool. Models have
        breakers of their own, which hear of each call and not of the step."""
        named = config.get("service")
        if named:
            return str(named)
        return self.tool_service(str(config["tool"])) if "tool" in config else ""

    def breaker_of(self, config: Mapping[str, Any]) -> str:
        """The breaker of that service. One that tools or models bring along is everybody's; one
        that only the document names is its tenant's (``erp@acme``), so that whatever a document
        does to it, no other tenant waits."""
        service = self.service_of(config)
        declared = self.service_of({**config, "service": None})
        is_shared = not self.tenant or service == declared
        return service if is_shared else own_name(service, self.tenant)

    def gates_of(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        """The keys of the gates of the step's service and model. A service is held by its name for
        all tenants, or as ``name@tenant`` for one; a name that holds an ``@`` only so, lest
        it be taken for another tenant's."""
        service, breaker = self.service_of(config), self.breaker_of(config)
        names = [breaker] if breaker == service or "@" in service else [service, breaker]
        keys = [gate_key("service", name) for name in names if name]
        model = config.get("model")
        if not model:
            return tuple(keys)
        return (*keys, *self.model_gates(str(model)), gate_key("model", str(model)))

    def queue_of(
        self, config: Mapping[str, Any], *, workflow: str, queue: str, priority: str = "normal"
    ) -> str:
        """The queue of the step's work; ``queue`` is that of its type, ``priority`` its workflow's
        class. What the document says about the queue stands above every rule."""
        if config.get("queue"):
            return str(config["queue"])
        place = Place(
            type=queue,
            tenant=self.tenant,
            workflow=workflow,
            tool=str(config.get("tool") or ""),
            model=str(config.get("model") or ""),
            priority=priority,
        )
        return route(self.routes, place) if self.routes else queue
