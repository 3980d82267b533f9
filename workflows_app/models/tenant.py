"""Tenants, the closed list of roles in each, and which people belong to one."""

from __future__ import annotations

from collections.abc import Iterable

from django.conf import settings
from django.core.validators import RegexValidator
from django.db import models

SHIPPED_ROLES = ("support_lead", "finance", "compliance_officer", "moderator", "operator")

slug = RegexValidator(
    r"^[a-z0-9][a-z0-9_-]{0,62}\Z", "Use lower-case letters, digits, _ and -, at most 63."
)
role_name = RegexValidator(
    r"^[a-z][a-z0-9_]{0,62}\Z", "Use lower-case letters, digits and _, at most 63."
)


class Tenant(models.Model):
    """Whoever owns workflows and runs. The engine sees the slug as an opaque string."""

    slug = models.CharField(primary_key=True, max_length=63, validators=[slug])
    name = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["slug"]

    def __str__(self) -> str:
        return self.slug

    @classmethod
    def ensure(cls, name: str) -> Tenant:
        """The tenant of that slug, made with the shipped roles when it is new."""
        tenant, _ = cls.objects.get_or_create(slug=name)
        Role.ensure(tenant, SHIPPED_ROLES)
        return tenant


class Role(models.Model):
    """One entry of a tenant's closed list of roles; documents may name no others."""

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="roles", db_index=False)
    name = models.CharField(max_length=63, validators=[role_name])
    title = models.TextField(blank=True)

    class Meta:
        ordering = ["tenant", "name"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "name"], name="workflows_role_once")
        ]

    def __str__(self) -> str:
        return self.name

    @classmethod
    def ensure(cls, tenant: Tenant, names: Iterable[str]) -> None:
        """Add the roles that are missing; existing ones stay as they are."""
        roles = [Role(tenant=tenant, name=name) for name in names]
        Role.objects.bulk_create(roles, ignore_conflicts=True)


class Membership(models.Model):
    """What a person who logs in with a browser may do in a tenant.

    ``roles`` are names of the tenant's roles, ``scopes`` those of ``workflows_app.principal``.
    """

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="memberships", db_index=False
    )
    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="memberships")
    roles = models.JSONField(default=list, blank=True)
    scopes = models.JSONField(default=list, blank=True)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["user", "tenant"], name="workflows_membership_once")
        ]

    def __str__(self) -> str:
        return f"{self.user} in {self.tenant_id}"
