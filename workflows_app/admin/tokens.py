"""API tokens in the console: who has one, when it was used, and how to end it."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils import timezone

from workflows_app.admin.confirming import FrozenPages, confirmed
from workflows_app.models import ApiToken

PERMISSION = "workflows_app.change_apitoken"


@admin.register(ApiToken)
class TokenAdmin(FrozenPages):
    """Tokens, never their secrets. ``manage.py token create`` makes one."""

    list_display = ("name", "shown", "status", "actor", "may", "roles_text", "used", "tenant")
    list_filter = ("tenant",)
    search_fields = ("name", "actor", "prefix")
    actions = ("revoke",)
    fields = (
        *("name", "shown", "tenant", "actor", "may", "roles_text", "status"),
        *("created_at", "expires_at", "revoked_at", "last_used_at"),
    )
    readonly_fields = fields

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        """Whether the user may revoke tokens. Nobody may edit them."""
        return bool(request.user.has_perm(PERMISSION))

    @admin.action(description="Revoke …", permissions=["revoke"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> TemplateResponse | None:
        """End these tokens now."""
        return confirmed(
            self,
            request,
            queryset,
            action="revoke",
            question="Revoke these tokens? Whoever uses them is refused from now on.",
            do=_revoke,
        )

    @admin.display(description="begins with")
    def shown(self, token: ApiToken) -> str:
        """What lets people tell tokens apart."""
        return f"{token.prefix}…"

    @admin.display(description="status")
    def status(self, token: ApiToken) -> str:
        """Whether it still opens anything."""
        if token.revoked_at:
            return "revoked"
        expired = token.expires_at is not None and token.expires_at <= timezone.now()
        return "expired" if expired else "valid"

    @admin.display(description="scopes")
    def may(self, token: ApiToken) -> str:
        """What it is good for."""
        return ", ".join(token.scopes)

    @admin.display(description="roles")
    def roles_text(self, token: ApiToken) -> str:
        """The gates it may decide."""
        return ", ".join(token.roles) or "none"

    @admin.display(description="last used", empty_value="never")
    def used(self, token: ApiToken) -> str | None:
        """To the minute."""
        return f"{token.last_used_at:%Y-%m-%d %H:%M} UTC" if token.last_used_at else None


def _revoke(token: ApiToken) -> str:
    ApiToken.objects.filter(pk=token.pk).revoke()
    return "revoked"
