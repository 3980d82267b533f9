"""From a request to a principal: a bearer token, or a staff member's browser session."""

from __future__ import annotations

from django.contrib.auth.models import AbstractBaseUser, User
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.exceptions import AuthenticationFailed, PermissionDenied
from rest_framework.request import Request

from workflows_app.models import ApiToken, Membership, Tenant
from workflows_app.models.token import find_bearer
from workflows_app.principal import ALL_SCOPES, Principal

LONGEST_TOKEN = 200


class BearerAuthentication(BaseAuthentication):
    """``Authorization: Bearer <token>``.

    Found by the token's hash, so that comparing takes the same time for every wrong token.
    """

    def authenticate(self, request: Request) -> tuple[Principal, str] | None:
        """The principal of the token; None when the request brings no bearer token."""
        scheme, _, secret = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        secret = secret.strip()
        token = find_bearer(secret) if 0 < len(secret) <= LONGEST_TOKEN else None
        if token is None:
            raise AuthenticationFailed(
                "The token is unknown, expired or revoked; get a new one from your administrator.",
                code="invalid_token",
            )
        if token.is_stale:
            ApiToken.objects.touch(token.pk)
        principal = Principal(
            tenant=token.tenant,
            actor=token.actor,
            roles=frozenset(token.roles),
            scopes=frozenset(token.scopes),
            via=f"token:{token.pk}",
        )
        return principal, principal.via

    def authenticate_header(self, request: Request) -> str:  # noqa: ARG002 - DRF's signature
        """What a 401 asks for."""
        return 'Bearer realm="api"'


class StaffSessionAuthentication(SessionAuthentication):
    """The login of the console, for staff; unsafe methods need the CSRF token."""

    def authenticate(self, request: Request) -> tuple[Principal, str] | None:
        """The principal of the logged-in staff member; None without such a session."""
        found = super().authenticate(request)
        if found is None:
            return None
        user, _ = found
        if not isinstance(user, User) or not user.is_staff:
            return None
        return session_principal(user, request.headers.get("X-Tenant")), "session"


def session_principal(user: AbstractBaseUser, tenant: str | None = None) -> Principal:
    """What ``user`` may do in ``tenant`` (None: their first, or the only one there is).

    A superuser without membership may use every scope but holds no role.
    """
    assert isinstance(user, User)
    memberships = Membership.objects.filter(user=user)
    if tenant is not None:
        memberships = memberships.filter(tenant_id=tenant)
    member = memberships.first()
    actor = f"user:{user.get_username()}"
    if member is not None:
        return Principal(
            tenant=member.tenant_id,
            actor=actor,
            roles=frozenset(member.roles),
            scopes=frozenset(member.scopes),
            via="session",
        )
    if user.is_superuser and (found := _only_tenant(tenant)):
        return Principal(tenant=found, actor=actor, scopes=ALL_SCOPES, via="session")
    raise PermissionDenied(
        "Your account belongs to no such tenant: ask an administrator for a membership.",
        code="no_membership",
    )


def _only_tenant(wanted: str | None) -> str | None:
    tenants = Tenant.objects.all() if wanted is None else Tenant.objects.filter(slug=wanted)
    slugs = list(tenants.values_list("slug", flat=True)[:2])
    return slugs[0] if len(slugs) == 1 else None
