"""Tenants, their closed lists of roles, and what people who log in may do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest

from workflows_app.models import Membership, Role, Tenant
from workflows_app.principal import ALL_SCOPES

if TYPE_CHECKING:  # Django's admin classes are generic for the type checker only
    Pages = admin.ModelAdmin[Any]
    MembershipBase = forms.ModelForm[Membership]
else:
    Pages, MembershipBase = admin.ModelAdmin, forms.ModelForm


@admin.register(Tenant)
class TenantAdmin(Pages):
    """A new tenant gets the shipped roles."""

    list_display = ("slug", "name", "created_at")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """The slug is what runs and blueprints are kept under."""
        del request
        return ("slug", "created_at") if obj else ("created_at",)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never: runs are kept under it."""
        del request, obj
        return False

    def save_model(self, request: HttpRequest, obj: Tenant, form: Any, change: bool) -> None:  # noqa: FBT001 - Django's signature
        """Keep it, and give it the shipped roles."""
        super().save_model(request, obj, form, change)
        Tenant.ensure(obj.slug)


@admin.register(Role)
class RoleAdmin(Pages):
    """Documents may name these roles and no others."""

    list_display = ("name", "title", "tenant")
    list_filter = ("tenant",)
    search_fields = ("name", "title")


class MembershipForm(MembershipBase):
    """Scopes to tick; roles of the tenant by name."""

    scopes = forms.MultipleChoiceField(
        choices=[(scope, scope) for scope in sorted(ALL_SCOPES)],
        widget=forms.CheckboxSelectMultiple,
        required=False,
    )
    roles = forms.CharField(
        required=False, help_text="Names of the tenant's roles, separated by commas."
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial["roles"] = ", ".join(self.instance.roles or ())

    def clean(self) -> dict[str, Any] | None:
        """The roles as a list; each must be on the tenant's."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        names = [name.strip() for name in cleaned.get("roles", "").split(",") if name.strip()]
        if tenant := cleaned.get("tenant"):
            known = set(tenant.roles.values_list("name", flat=True))
            for name in names:
                if name not in known:
                    self.add_error("roles", f"{tenant} has no role {name!r}.")
        cleaned["roles"] = names
        return cleaned


@admin.register(Membership)
class MembershipAdmin(Pages):
    """What somebody who logs in may do in a tenant, by the API and at gates."""

    form = MembershipForm
    list_display = ("user", "tenant", "roles_text", "scopes_text")
    list_filter = ("tenant",)
    search_fields = ("user__username",)
    autocomplete_fields = ("user",)
    list_select_related = ("user",)

    @admin.display(description="roles")
    def roles_text(self, member: Membership) -> str:
        """The gates they may decide."""
        return ", ".join(member.roles) or "none"

    @admin.display(description="scopes")
    def scopes_text(self, member: Membership) -> str:
        """What the API lets them do."""
        return ", ".join(member.scopes) or "none"
