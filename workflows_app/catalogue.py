"""The names that a tenant's documents may use."""

from __future__ import annotations

from functools import cached_property

from orchestrator import engine
from workflows_app.models import Role, WorkflowVersion


class TenantCatalogue(engine.InstalledParts):
    """What is installed, with one tenant's roles and published workflows; each read once."""

    def __init__(self, tenant: str) -> None:
        self._tenant = tenant

    @cached_property
    def _roles(self) -> frozenset[str]:
        return frozenset(Role.objects.filter(tenant=self._tenant).values_list("name", flat=True))

    @cached_property
    def _versions(self) -> dict[str, set[int]]:
        published = WorkflowVersion.objects.filter(
            workflow__tenant=self._tenant, state=WorkflowVersion.State.PUBLISHED
        )
        found: dict[str, set[int]] = {}
        for name, number in published.values_list("workflow__name", "number"):
            found.setdefault(name, set()).add(number)
        return found

    def has_role(self, role: str) -> bool:
        """Whether the tenant has the role."""
        return role in self._roles

    def roles(self) -> frozenset[str]:
        """The tenant's roles."""
        return self._roles

    def workflow(self, name: str, version: int | None) -> bool:
        """Whether the tenant has published it (version None: in any version)."""
        numbers = self._versions.get(name, set())
        return bool(numbers) if version is None else version in numbers

    def workflows(self) -> tuple[str, ...]:
        """The tenant's published workflows."""
        return tuple(self._versions)
